"""What a sweep file says of tracking."""

import pytest
from sweep_files import error_of

from tune_tf.config import MLflowSettings

MODEL_NAMES = ["digits", "digits cnn", "Ziffern-Größe", "a.b", "x" * 255]
WRONG_MODEL_NAMES = ["", " ", "a/b", "a:b", "..", ".", "x" * 256]
WRONG_ALIASES = ["", "latest", "Latest", "v3", "V12", "a b", "a/b", "x" * 256]


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_best_model_can_be_registered_under(name):
    assert MLflowSettings(register_best=name).register_best == name


@pytest.mark.parametrize("name", WRONG_MODEL_NAMES)
def test_a_name_that_mlflow_refuses_is_refused_before_the_sweep(name):
    error = error_of({"mlflow": {"register_best": name}})

    assert error.where == "mlflow.register_best"
    assert "without '/' and ':'" in error.what
    assert "use a name such as digits-cnn" in error.what


@pytest.mark.parametrize("alias", WRONG_ALIASES)
def test_an_alias_that_mlflow_refuses_is_refused_before_the_sweep(alias):
    error = error_of({"mlflow": {"best_alias": alias}})

    assert error.where == "mlflow.best_alias"
    assert "use an alias such as champion" in error.what


@pytest.mark.parametrize("name", [*MODEL_NAMES, *WRONG_MODEL_NAMES])
def test_a_model_name_is_judged_as_mlflow_judges_it(name):
    from mlflow.exceptions import MlflowException
    from mlflow.utils.validation import _validate_model_name

    ours = name in MODEL_NAMES
    try:
        _validate_model_name(name)
    except MlflowException:
        assert not ours
    else:
        assert ours or len(name) > 255  # its database refuses these later


def test_a_model_that_is_not_logged_cannot_be_registered():
    error = error_of({"mlflow": {"log_best_model": False, "register_best": "digits"}})

    assert error.where == "mlflow.register_best"
    assert "log_best_model is false" in error.what


def test_a_version_may_go_without_an_alias():
    assert MLflowSettings(register_best="digits", best_alias=None).best_alias is None
