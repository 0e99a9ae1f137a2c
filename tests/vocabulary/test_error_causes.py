"""What is kept of an error: the line that says what is wrong, by whatever it is surrounded."""

import traceback

import pytest

from tune_tf.errors import RAISED_AT, InvalidSettingsError, first_line
from tune_tf.outcome_rules import error_cause


def error_of(function):
    """Return the exception that a function raises."""
    try:
        function()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


def text_of(error):
    return "".join(traceback.format_exception(error))


def plain():
    raise ValueError("no rows")


def several_lines():
    raise ValueError("x and y differ:\n  x has 3 rows\n  name: y has 4 rows")


def chained():
    try:
        plain()
    except ValueError as error:
        raise RuntimeError("the table cannot be read") from error


def noted():
    error = InvalidSettingsError("a.csv has no header")
    error.add_note(f"{RAISED_AT}\n{text_of(error_of(plain))}")
    raise error


PYTHON = {
    plain: "ValueError: no rows",
    several_lines: "ValueError: x and y differ: x has 3 rows name: y has 4 rows",
    chained: "RuntimeError: the table cannot be read",
    noted: "InvalidSettingsError: a.csv has no header",
}


@pytest.mark.parametrize("raises", PYTHON, ids=lambda raises: raises.__name__)
def test_the_cause_is_what_the_last_exception_says_also_of_a_task_of_ray(raises):
    from ray.exceptions import RayTaskError

    error = error_of(raises)
    assert error_cause(text_of(error)) == PYTHON[raises]
    text = f"\x1b[36mray::Trial.train()\x1b[39m (pid=9, ip=10.0.0.1)\n{text_of(error)}"
    wrapped = RayTaskError("train", text, error).as_instanceof_cause()
    assert error_cause(str(wrapped)) == PYTHON[raises]
    assert error_cause(f"Failure # 1 (occurred at x)\n{text_of(wrapped)}") == PYTHON[raises]


ACTOR_DIED = """The actor died unexpectedly before finishing this task.
\tclass_name: ResourceTrainable
\tactor_id: 3b0aedf948b6
\tpid: 9528
\tip: 10.0.0.1
The actor is dead because its worker process has died."""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", ""),
        ("ray::f() (pid=9, ip=10.0.0.1)\nValueError: boom\n", "ValueError: boom"),
        (
            ACTOR_DIED,
            "The actor died unexpectedly before finishing this task. The actor is dead because its "
            "worker process has died.",
        ),
        (
            "Failure # 1 (occurred at 12-00)\nMemoryError: a\nFailure # 2 (occurred at 12-01)\n"
            "ValueError: b\n",
            "ValueError: b",
        ),
        ("ValueError: " + "x" * 600, "ValueError: " + "x" * 488),
    ],
    ids=["nothing", "no frames", "a killed actor", "the last failure", "long"],
)
def test_a_text_without_frames_is_its_own_cause(text, cause):
    assert error_cause(text) == cause


def label_out_of_range():
    import tensorflow as tf

    @tf.function
    def train():
        total = 0.0
        for _ in tf.range(3):
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits([0, 2], tf.zeros((2, 2)))
            total += tf.reduce_sum(loss)
        return total

    train()


def wrong_shape_of_a_layer():
    import keras

    keras.Sequential([keras.Input((5,)), keras.layers.Reshape((3,))])


def unequal_rows():
    import tensorflow as tf

    spec = tf.TensorSpec((None,))
    rows = tf.data.Dataset.from_generator(lambda: [[0.0], [0.0, 1.0]], output_signature=spec)
    list(rows.batch(2))


TENSORFLOW = {
    label_out_of_range: (
        "InvalidArgumentError",
        "Received a label value of 2 which is outside the valid range of [0, 2).",
    ),
    wrong_shape_of_a_layer: (
        "ValueError",
        "Exception encountered when calling Reshape.call(). The total size of the tensor must be "
        "unchanged. Received: input_shape=(5,), target_shape=(3,)",
    ),
    unequal_rows: (
        "InvalidArgumentError",
        "Cannot batch tensors with different shapes in component 0. First element had shape [1]",
    ),
}


@pytest.mark.tf
@pytest.mark.parametrize("raises", TENSORFLOW, ids=lambda raises: raises.__name__)
def test_an_error_of_tensorflow_or_keras_is_told_without_its_surroundings(raises):
    name, said = TENSORFLOW[raises]
    error = error_of(raises)
    cause = error_cause(text_of(error))
    assert cause.startswith(f"{name}: {said}")
    assert len(cause) < 300
    assert not [each for each in ("[[{{", "[Op:", "File ", "\x1b", "Arguments") if each in cause]
    assert first_line(error).removeprefix(f"{name}: ").startswith(said)
