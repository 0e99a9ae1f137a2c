"""Folders of images."""

import os

import numpy as np
import own_data_files
import pytest

import tune_tf
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads.image_folder import ImageFolderCNN

pytestmark = pytest.mark.tf


@pytest.fixture
def folder(tmp_path):
    """A folder of 100 digits."""
    return own_data_files.digit_folders(tmp_path / "digits", 100)


def made(folder, **settings):
    return ImageFolderCNN(path=str(folder), **{"image_size": 8, "channels": 1, **settings})


def test_images_become_bytes_with_the_class_of_their_folder(folder):
    workload = made(folder)
    data = workload.load_data({})

    x, y = data.train
    assert (x.shape, x.dtype, y.dtype) == ((70, 8, 8, 1), np.uint8, np.int32)
    assert workload.properties == tuple("0123456789")
    images, labels = own_data_files.digits(100)
    found = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for part in (data.train, data.validation, data.test):
        assert all(found[image.tobytes()] == label for image, label in zip(*part, strict=True))


@pytest.mark.parametrize(
    ("parts", "num_rows"),
    [(("train", "val"), (40, 40, None)), (("Training", "Testing"), (32, 8, 40))],
)
def test_folders_of_parts_stay_as_they_are(parts, num_rows, tmp_path):
    for part in parts:
        own_data_files.digit_folders(tmp_path / "parts" / part, 40)
    data = made(tmp_path / "parts").load_data({})

    found = [part and len(part[1]) for part in (data.train, data.validation, data.test)]
    assert tuple(found) == num_rows


def test_images_are_resized_as_the_config_says(folder):
    workload = made(folder, channels=3)
    x, _ = workload.load_data({"image_size": [6, 10]}).train

    assert x.shape[1:] == (6, 10, 3)
    assert workload.build_model({"image_size": [6, 10]}).input_shape == (None, 6, 10, 3)


def test_a_trial_trains_on_augmented_images_and_validates_on_others(folder):
    workload = made(folder, augment=True)
    trial = tune_tf.trainable(workload, seed=1)(config={"filters": 4, "learning_rate": 0.01})
    losses = [trial.train()["loss"] for _ in range(4)]
    assert losses[-1] < losses[0]

    x = workload.load_data({}).train[0][:8]
    model = workload.build_model({"filters": 4})
    drawn = [np.array(model(x, training=True)) for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 1e-4
    assert np.array_equal(*(model.predict(x, verbose=0) for _ in range(2)))


def test_images_that_changed_are_refused(folder):
    workload = made(folder)
    workload.check_data()
    os.utime(folder / "0" / "000.png", (1, 1))

    with pytest.raises(WorkloadError, match="digits changed during the sweep: trials"):
        workload.load_data({})


def without_classes(folder):
    return folder / "0"


def with_an_empty_class(folder):
    (folder / "ten").mkdir()
    return folder


def with_a_class_in_validation_only(folder):
    folder.rename(folder.parent / "train")
    (folder.parent / "val" / "ten").mkdir(parents=True)
    return folder.parent


def with_text(folder):
    (folder / "3" / "000.jpg").write_bytes(b"no image")
    return folder


def with_a_link_to_nothing(folder):
    (folder / "3" / "100.png").symlink_to("nothing.png")
    return folder


def with_a_truncated_image(folder):
    path = folder / "3" / "003.png"
    path.write_bytes(path.read_bytes()[:-30])
    return folder


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param(
            lambda it: it / "nowhere",
            "data.path: .*nowhere cannot be read: No such file",
            id="missing",
        ),
        pytest.param(without_classes, r"holds 0 class folder\(s\)", id="no classes"),
        pytest.param(with_an_empty_class, "class folder .*ten holds no images", id="empty class"),
        pytest.param(
            with_a_class_in_validation_only,
            "val has the class folders ten, but .*train has 0",
            id="new",
        ),
        pytest.param(with_a_link_to_nothing, r"3/100\.png cannot be read: No such", id="link"),
        pytest.param(with_text, r"3/000\.jpg is no image that Tens", id="text"),
        pytest.param(with_a_truncated_image, r"3/003\.png is no image that Tens", id="truncated"),
    ],
)
def test_a_folder_that_cannot_be_learnt_from_says_why(change, match, folder):
    with pytest.raises(WorkloadError, match=match):
        made(change(folder)).load_data({})


@pytest.mark.parametrize("size", [0, [8], "8", [8, 8.0], True])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(InvalidSettingsError, match="image_size: must be a side in pixels"):
        ImageFolderCNN(path="a", image_size=size)
