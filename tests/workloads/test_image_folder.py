"""Folders of images."""

import os

import numpy as np
import own_data_files
import pytest
import tensorflow as tf
from PIL import Image

import tune_tf
from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads.image_folder import ImageDecoder, ImageFolderCNN, RandomShift

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
    assert workload.properties.classes == tuple("0123456789")
    images, labels = own_data_files.digits(100)
    found = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for part in (data.train, data.validation, data.test):
        assert all(found[image.tobytes()] == label for image, label in zip(*part, strict=True))


def test_folders_of_parts_stay_as_they_are(folder, tmp_path):
    for part in ("train", "val"):
        own_data_files.digit_folders(tmp_path / "parts" / part, 40)
    data = made(tmp_path / "parts").load_data({})

    assert [len(data.train[1]), len(data.validation[1]), data.test] == [40, 40, None]


def test_test_images_of_their_own_leave_the_others_to_train_and_validate_on(tmp_path):
    for part in ("train", "test"):
        own_data_files.digit_folders(tmp_path / "parts" / part, 40)
    data = made(tmp_path / "parts").load_data({})

    assert [len(part[1]) for part in (data.train, data.validation, data.test)] == [32, 8, 40]


def test_images_are_resized_as_the_config_says(folder):
    workload = made(folder, channels=3)
    x, _ = workload.load_data({"image_size": [6, 10]}).train

    assert x.shape[1:] == (6, 10, 3)
    assert workload.build_model({"image_size": [6, 10]}).input_shape == (None, 6, 10, 3)


def test_a_trial_trains_on_augmented_images(folder):
    trial = tune_tf.trainable(made(folder, augment=True, flip=False), seed=1)(
        config={"filters": 4, "learning_rate": 0.01}
    )
    losses = [trial.train()["loss"] for _ in range(4)]

    assert losses[-1] < losses[0]


def test_a_photo_is_turned_upright(tmp_path):
    image = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3))
    exif = image.getexif()
    exif[0x0112] = 3  # taken upside down
    image.save(tmp_path / "a.png", exif=exif)

    assert ImageDecoder(2, 3, 1)(tmp_path / "a.png").ravel().tolist() == [5, 4, 3, 2, 1, 0]


def test_deep_images_are_refused_instead_of_cut_off(tmp_path):
    Image.fromarray(np.full((2, 2), 60_000, np.uint16)).save(tmp_path / "a.png")

    with pytest.raises(ValueError, match="more than 8 bits per channel"):
        ImageDecoder(2, 2, 1)(tmp_path / "a.png")


def test_a_shift_moves_the_image_and_repeats_its_edge():
    image = tf.constant(np.arange(25, dtype=np.uint8).reshape(5, 5, 1))
    shifted = RandomShift(5, 5, flip=False, max_shift=0.2)
    seen = {shifted((image, 0), tf.constant([0, seed]))[0].numpy().tobytes() for seed in range(100)}

    steps = [np.clip(np.arange(5) + step, 0, 4) for step in (-1, 0, 1)]
    pixels = image.numpy()[..., 0]
    assert seen == {pixels[rows][:, columns].tobytes() for rows in steps for columns in steps}


def test_a_flip_mirrors_about_half_of_the_images():
    image = tf.constant(np.arange(4, dtype=np.uint8).reshape(1, 4, 1))
    flipped = RandomShift(1, 4, flip=True, max_shift=0.0)
    seen = [flipped((image, 0), tf.constant([0, seed]))[0][0, 0, 0] for seed in range(100)]

    assert 30 < sum(int(first) == 3 for first in seen) < 70
    assert {int(first) for first in seen} == {0, 3}


def test_validation_images_and_those_without_augment_stay_as_they_are(folder):
    assert made(folder, augment=True).per_example({}, training=False) is None
    assert made(folder).per_example({}, training=True) is None


def test_only_augmented_images_refuse_loops_that_cannot_augment(folder):
    assert tune_tf.trainable(made(folder), loop="fit")
    with pytest.raises(InvalidSettingsError, match="does not support ImageFolderCNN"):
        tune_tf.trainable(made(folder, augment=True), loop="fit")


def test_a_broken_image_is_told_by_its_file(folder):
    (folder / "3" / "000.jpg").write_bytes(b"no image")

    with pytest.raises(WorkloadError, match=r"3/000\.jpg.*cannot identify image file"):
        made(folder).load_data({})


def test_a_truncated_image_is_told_by_its_file(folder):
    path = folder / "3" / "003.png"
    path.write_bytes(path.read_bytes()[:-30])

    with pytest.raises(WorkloadError, match=r"3/003\.png"):
        made(folder).load_data({})


def test_broken_images_can_be_left_out(folder):
    (folder / "3" / "000.jpg").write_bytes(b"no image")
    data = made(folder, on_bad_record="skip").load_data({})

    parts = (data.train, data.validation, data.test)
    assert sum(len(y) for _, y in parts) == 100
    images, labels = own_data_files.digits(100)
    found = {image.tobytes(): label for image, label in zip(images, labels, strict=True)}
    for part in parts:
        assert all(found[image.tobytes()] == label for image, label in zip(*part, strict=True))


def test_a_part_without_any_image_is_told(folder, tmp_path):
    own_data_files.digit_folders(tmp_path / "parts" / "train", 40)
    broken = tmp_path / "parts" / "val" / "3" / "a.png"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"no image")

    with pytest.raises(WorkloadError, match="none of the 1 files of validation is an image"):
        made(tmp_path / "parts", on_bad_record="skip").load_data({})


def test_images_that_changed_are_refused(folder):
    workload = made(folder)
    workload.check_data()
    os.utime(folder / "0" / "000.png", (1, 1))

    with pytest.raises(WorkloadError, match="digits changed during the sweep: it had 100 files"):
        workload.load_data({})


def without_classes(folder):
    return folder / "0"


def with_an_empty_class(folder):
    (folder / "ten").mkdir()
    return folder


def with_loose_images(folder):
    (folder / "0" / "000.png").rename(folder / "loose.png")
    return folder


def with_a_class_in_validation_only(folder):
    folder.rename(folder.parent / "train")
    (folder.parent / "val" / "ten").mkdir(parents=True)
    return folder.parent


@pytest.mark.parametrize(
    ("change", "match"),
    [
        pytest.param(lambda it: it / "nowhere", "there is no folder .*nowhere", id="missing"),
        pytest.param(lambda it: it / "0" / "000.png", "is a file: name the folder", id="file"),
        pytest.param(without_classes, r"holds 0 class folder\(s\)", id="no classes"),
        pytest.param(with_an_empty_class, "class folder .*ten holds no images", id="empty class"),
        pytest.param(with_loose_images, r"1 image\(s\) outside a class .*loose\.png", id="loose"),
        pytest.param(
            with_a_class_in_validation_only, "a class 'ten' that is missing in .*train", id="new"
        ),
    ],
)
def test_a_folder_that_cannot_be_learnt_from_says_why_before_training(change, match, folder):
    with pytest.raises(WorkloadError, match=match):
        made(change(folder)).check_data()


@pytest.mark.parametrize("size", [0, [8], "8", [8, 8.0], True])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(InvalidSettingsError, match="image_size: must be a side in pixels"):
        ImageFolderCNN(path="a", image_size=size)
