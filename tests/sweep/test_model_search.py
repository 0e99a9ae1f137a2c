"""``tune_tf.search``: its arguments, and a search as a script runs it."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tune_tf
from tune_tf.errors import InvalidSettingsError
from tune_tf.sweep import model_search
from tune_tf.sweep.callbacks.progress import ProgressLines
from tune_tf.workloads.digits import DigitsMLP

SPACE = {"width": tune_tf.Int(8, 64)}
ROWS = (np.arange(20.0)[:, None], np.arange(20))
SWEEP_PY = Path(__file__).parents[2] / "scripts" / "sweep.py"


def build(config):
    return None


@pytest.fixture
def searched(monkeypatch):
    """Return the settings of a search that is not run."""
    configs = []
    monkeypatch.setattr(model_search, "run_sweep", lambda it, **options: configs.append(it))

    def searched(*arguments, **options):
        tune_tf.search(*arguments, **options)
        return configs[-1]

    return searched


def test_the_arguments_become_the_settings_of_a_sweep(searched):
    config = searched(build, ROWS, SPACE, epochs=7, trials=3, objective="val_accuracy")
    assert (config.name, config.epochs, config.budget.num_samples) == ("build", 7, 3)
    assert config.objective == tune_tf.Objective("val_accuracy", "max")
    assert config.space == tune_tf.SearchSpace(SPACE)
    assert searched(build, ROWS, SPACE).objective == tune_tf.Objective("val_loss", "min")


def test_objectives_of_keras_tuner_are_taken(searched):
    theirs = SimpleNamespace(name="val_gain", direction="max")  # as keras_tuner.Objective
    gain, loss = tune_tf.Objective("val_gain", "max"), tune_tf.Objective("val_loss", "min")
    assert searched(build, ROWS, SPACE, objective=theirs).objective == gain
    both = searched(build, ROWS, SPACE, objective=["val_loss", theirs])
    assert both.objectives == (loss, gain)


def test_all_other_settings_of_a_sweep_can_be_given(searched):
    config = searched(
        build,
        ROWS,
        SPACE,
        name="mine",
        seed=3,
        scheduler={"name": "asha"},
        mlflow=None,
        budget={"time_budget_s": 60},
        parallelism=tune_tf.Mirrored(num_replicas=2),
    )
    assert (config.name, config.seed, config.scheduler.name) == ("mine", 3, "asha")
    assert (config.budget.time_budget_s, config.budget.num_samples) == (60, 20)
    assert config.parallelism.num_replicas == 2


def test_a_sweep_is_named_after_the_function_of_its_model(searched):
    config = searched(build, ROWS, SPACE)
    assert config.workload == "workload.pickle:build"
    assert config.workload_name == "build"
    assert searched(lambda config: None, ROWS, SPACE).workload_name == "FunctionWorkload"


@pytest.mark.parametrize(
    ("validation", "sizes"), [(0.2, (16, 4)), (0.01, (19, 1)), (0.99, (1, 19))]
)
def test_arrays_are_split_at_random_and_no_row_is_lost(validation, sizes, searched):
    data = searched(build, ROWS, SPACE, validation=validation).workload.workload.load_data({})
    assert (len(data.train[0]), len(data.validation[0])) == sizes
    for x, y in (data.train, data.validation):
        assert np.array_equal(x[:, 0], y)
    assert sorted([*data.train[1], *data.validation[1]]) == list(range(20))


def test_validation_rows_sample_weights_and_nested_arrays_are_kept(searched):
    given = (ROWS, ROWS)
    data = searched(build, *given[:1], SPACE, validation=ROWS).workload.workload.load_data({})
    assert all(map(np.array_equal, data.validation, ROWS))
    nested = ({"a": ROWS[0], "b": (ROWS[1], ROWS[1])}, ROWS[1], np.ones(20))
    data = searched(build, nested, SPACE).workload.workload.load_data({})
    assert len(data.train[0]["b"][1]) == len(data.train[2]) == 16


def test_a_function_gives_the_data_of_each_config(searched):
    config = searched(build, lambda it: tune_tf.Data((it["n"], 0)), SPACE)
    assert config.workload.workload.load_data({"n": 5}).train == (5, 0)


def test_a_workload_brings_its_data(searched):
    assert searched(DigitsMLP, None, SPACE).workload == "workload.pickle:DigitsMLP"
    assert searched(DigitsMLP(), space=SPACE).name == "DigitsMLP"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((build, "rows", SPACE), "data must be arrays"),
        ((build, [1, 2], SPACE), "def load_data"),
        ((build, (ROWS[0], ROWS[1][:3]), SPACE), "the same number of rows"),
        ((build, (ROWS[0][:1], ROWS[1][:1]), SPACE), "data has one row"),
        ((build, (ROWS[0], None), SPACE), r"the same number of rows, not \(20, 1\), \(\)"),
        ((build, (ROWS[0][:0], ROWS[1][:0]), SPACE), r"not \(0, 1\), \(0,\)"),
        ((build, tune_tf.Data(ROWS), SPACE), r"Data has none: write tune_tf\.Data\(train=\.\.\.,"),
        ((build, ROWS), r"space is missing: .* only a function build\(hp\)"),
        ((lambda model: build(model), ROWS), "space is missing"),
        ((3, ROWS, SPACE), "model must be a function"),
        (
            (SimpleNamespace(run_trial=print), ROWS),
            "a tuner of KerasTuner, .*give its",
        ),
        ((DigitsMLP, ROWS, SPACE), "has its own data, .* leave these arguments out"),
        ((DigitsMLP,), "space is missing"),
        ((build, ROWS, {"width": [8, 64]}), r"width: is \[8, 64\], which may be a range"),
    ],
)
def test_wrong_arguments_are_refused_with_what_to_write(arguments, text, searched):
    with pytest.raises(InvalidSettingsError, match=text):
        searched(*arguments)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"validation": ROWS[0]}, "validation must be arrays"),
        ({"validation": (ROWS[0], ROWS[1][:3])}, "validation must be arrays"),
        ({"validation": 0}, "share from 0 to 1"),
        ({"validation": True}, "share from 0 to 1"),
        ({"validation": 1.5}, "share from 0 to 1"),
        ({"trails": 3}, r"trails: unknown key; did you mean 'trials'\?"),
        ({"max_trials": 3}, "max_trials: unknown key"),
        ({"budget": {"num_samples": 3}}, "is the argument trials here"),
        ({"budget": 3}, "budget: must be a mapping"),
        ({"trials": 0}, "budget.num_samples: must be at least 1"),
        ({"objective": "val_gain"}, r'objective=tune_tf\.Objective\("val_gain", "max"\), or'),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_options_are_refused_with_what_to_write(options, text, searched):
    with pytest.raises(InvalidSettingsError, match=text):
        searched(build, ROWS, SPACE, **options)


@pytest.mark.parametrize("model", [DigitsMLP, DigitsMLP()])
@pytest.mark.parametrize("option", [{"validation": 0.5}, {"callbacks": [object()]}])
def test_what_a_workload_has_is_not_given_beside_it(model, option, searched):
    with pytest.raises(InvalidSettingsError, match="leave these arguments out"):
        searched(model, space=SPACE, **option)


def test_validation_rows_are_given_once(searched):
    data = tune_tf.Data(ROWS, ROWS)
    with pytest.raises(InvalidSettingsError, match="validation rows of its own: leave it out"):
        searched(build, data, SPACE, validation=0.5)
    assert searched(build, data, SPACE).workload.workload.load_data({}) is data
    folds = {"kind": "folds", "num_folds": 2}
    assert searched(build, tune_tf.Data(ROWS), SPACE, parallelism=folds)


def test_tables_of_pandas_are_taken_as_arrays(searched):
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"a": range(20), "b": range(20)}, index=range(100, 120))
    config = searched(build, (table, table["a"]), SPACE, validation=(table[:3], table["b"][:3]))
    data = config.workload.workload.load_data({})
    assert type(data.train[0]) is type(data.validation[1]) is np.ndarray
    assert data.train[0].shape == (20, 2)
    assert data.validation[1].tolist() == [0, 1, 2]


def test_progress_is_printed_unless_it_is_quiet(monkeypatch):
    given = []
    monkeypatch.setattr(
        model_search, "run_sweep", lambda config, callbacks: given.extend(callbacks)
    )
    tune_tf.search(build, ROWS, SPACE, trials=3, verbose=False)
    assert given == []
    tune_tf.search(build, ROWS, SPACE, trials=3)
    assert [type(each) for each in given] == [ProgressLines]


@pytest.mark.tf
def test_datasets_and_models_of_keras_are_refused_with_what_to_write(searched):
    import keras
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(ROWS)
    for data in (rows, (rows, rows)):
        with pytest.raises(InvalidSettingsError, match=r"a function `def load_data"):
            searched(build, data, SPACE)
    for model in (keras.Sequential(), keras.Sequential):
        with pytest.raises(InvalidSettingsError, match=r"function from a .* not a Keras model"):
            searched(model, ROWS, SPACE)


# KerasTuner's guide "Getting started", on digits: only its last lines are others.
SCRIPT = """
import keras, tune_tf
from keras import layers
from sklearn.datasets import load_digits

def build_model(hp):
    model = keras.Sequential()
    model.add(layers.Flatten())
    units = hp.Int("units", min_value=32, max_value=512, step=32)
    model.add(layers.Dense(units, activation=hp.Choice("activation", ["relu", "tanh"])))
    if hp.Boolean("dropout"):
        model.add(layers.Dropout(rate=0.25))
    model.add(layers.Dense(10, activation="softmax"))
    learning_rate = hp.Float("lr", min_value=1e-4, max_value=1e-2, sampling="log")
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate=learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model

if __name__ == "__main__":
    x, y = load_digits(return_X_y=True)
    val = x[-200:], y[-200:]
    result = tune_tf.search(
        build_model, (x[:-200], y[:-200]), validation=val, objective="val_accuracy",
        trials=2, epochs=2, mlflow=None, callbacks=[keras.callbacks.EarlyStopping(patience=1)],
    )
    loss, accuracy = result.best_model().evaluate(*val, verbose=0)
    print("scores", result.best_value, accuracy, len(val[0]))
"""


@pytest.mark.tf
@pytest.mark.cluster
@pytest.mark.slow
def test_a_script_of_keras_tuner_searches_and_the_verbs_know_its_sweep_elsewhere(tmp_path):
    (tmp_path / "mine.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    scores = next(line for line in done.stdout.splitlines() if line.startswith("scores"))
    best, accuracy, num_rows = map(float, scores.split()[1:])
    assert best == pytest.approx(accuracy, abs=1e-6)
    assert num_rows == 200
    (tmp_path / "mine.py").unlink()

    def verb(*arguments):
        command = [sys.executable, SWEEP_PY, *arguments, "--storage-path", tmp_path / "sweeps"]
        done = subprocess.run(
            command, cwd=tmp_path.parent, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "2 completed" in verb("status", "build-model")
    verb("extend", "build-model", "num_samples=+1")
    assert len(json.loads(verb("trials", "build-model", "--json"))) == 3
    verb("export", "build-model", "--output", str(tmp_path / "best.keras"))
    assert (tmp_path / "best.keras").is_file()
