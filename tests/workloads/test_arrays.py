"""Arrays of users' own."""

import numpy as np
import pytest
from keras import layers

from tune_tf.errors import WorkloadError
from tune_tf.workloads.arrays import ArraysModel

X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
Y = np.arange(20) % 4


@pytest.fixture
def saved(tmp_path):
    """Write an .npz file; return its path."""

    def save(**arrays):
        np.savez(tmp_path / "data.npz", **arrays)
        return str(tmp_path / "data.npz")

    return save


def test_rows_are_divided_where_the_file_does_not(saved):
    data = ArraysModel(path=saved(x=X, y=Y)).load_data({})

    assert [len(part[1]) for part in (data.train, data.validation, data.test)] == [14, 4, 2]
    for x, y in (data.train, data.validation, data.test):
        rows = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in x]
        assert Y[rows].tolist() == y.tolist()


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        pytest.param((5,), layers.Dense, id="numbers"),
        pytest.param((8, 8, 3), layers.Conv2D, id="images"),
        pytest.param((8, 8), layers.Conv2D, id="grey images"),
        pytest.param((2, 2, 2, 2), layers.Flatten, id="volumes"),
    ],
)
def test_the_model_fits_the_shape_of_a_row(shape, kind, saved):
    workload = ArraysModel(path=saved(x=np.zeros((20, *shape), np.float32), y=Y))
    model = workload.build_model({"filters": 2})

    assert model.input_shape == (None, *shape)
    assert model.output_shape == (None, 4)
    assert any(isinstance(layer, kind) for layer in model.layers)


def test_bytes_are_scaled_inside_the_model_and_stay_bytes(saved):
    workload = ArraysModel(path=saved(x=np.full((20, 4), 255, np.uint8), y=Y))

    assert workload.load_data({}).train[0].dtype == np.uint8
    (scaling,) = [
        each for each in workload.build_model({}).layers if isinstance(each, layers.Rescaling)
    ]
    assert scaling.scale == pytest.approx(1 / 255)


@pytest.mark.parametrize(
    ("y", "settings", "expected"),
    [
        pytest.param(Y, {}, 4, id="whole numbers"),
        pytest.param(Y.astype(np.float32), {}, None, id="numbers"),
        pytest.param(Y, {"task": "regression"}, None, id="told regression"),
        pytest.param(Y.astype(np.float32), {"task": "classification"}, 4, id="told classes"),
        pytest.param(np.arange(20) + 50, {"task": "auto", "validation_share": 0}, 70, id="high"),
    ],
)
def test_what_is_learnt_follows_from_the_targets(y, settings, expected, saved):
    workload = ArraysModel(path=saved(x=X, y=y), **settings)

    assert workload.properties.head.num_classes == expected
    assert workload.load_data({}).train[1].dtype == (np.float32 if expected is None else np.int32)


NAN = np.where(np.arange(20)[:, None] == 3, np.nan, X)
REFUSED = {  # arrays (and task), what the message names
    "lengths": ({"x": X, "y": Y[:19]}, r"x of train has the shape \[20, 3\] and y \[19\]"),
    "no y": ({"x": X}, "holds x, but needs x_train and y_train, or x and y"),
    "no y of a part": ({"x": X, "y": Y, "x_test": X}, "holds x, y, x_test, but needs .* both"),
    "empty": ({"x": X[:0], "y": Y[:0]}, r"shape \[0, 3\] .* there must be rows"),
    "negative": ({"x": X, "y": Y - 1}, r"row\(s\) 0, 4, .* hold\(s\) -1"),
    "halves": ({"x": X, "y": Y + 0.5, "task": "classification"}, "integers from 0"),
    "one class": ({"x": X, "y": Y * 0}, "holds only one class"),
    "one-hot": ({"x": X, "y": np.eye(4, dtype=int)[Y]}, r"\[20, 4\], but classes are one integer"),
    "ragged": ({"x": np.array([[1], [1, 2]] * 10, object), "y": Y}, "ragged rows are objects"),
    "text": ({"x": X.astype(str), "y": Y}, "but a model takes numbers"),
    "shapes": (
        {"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y},
        r"x of test has the shape \[20, 2\] .* shape of those of train, \[3\]",
    ),
    "NaN in y": ({"x": X, "y": np.where(Y == 1, np.nan, 0.5)}, r"y of train holds NaN"),
    "NaN in x": ({"x": NAN, "y": Y}, r"x of train holds NaN or infinity in row\(s\) 3"),
}


@pytest.mark.parametrize(("arrays", "match"), REFUSED.values(), ids=REFUSED)
def test_arrays_that_cannot_be_learnt_from_say_why(arrays, match, saved):
    settings = {"task": arrays.get("task", "auto")}
    arrays = {name: array for name, array in arrays.items() if name != "task"}
    with pytest.raises(WorkloadError, match=match):
        ArraysModel(path=saved(**arrays), **settings).load_data({})


def test_what_is_no_npz_file_is_told(tmp_path):
    (tmp_path / "a.npz").write_text("no archive")
    np.save(tmp_path / "x.npy", X)
    for name in ("a.npz", "x.npy"):
        with pytest.raises(WorkloadError, match=rf"{name} cannot be read as an \.npz file"):
            ArraysModel(path=str(tmp_path / name)).check_data()
    with pytest.raises(WorkloadError, match=r"data.path: .*b\.npz cannot be read: No such file"):
        ArraysModel(path=str(tmp_path / "b.npz")).check_data()
