"""TFRecord files of users' own."""

import gzip
import shutil

import numpy as np
import own_data_files
import pytest
import tensorflow as tf

from tune_tf.errors import InvalidSettingsError, WorkloadError
from tune_tf.workloads.tfrecords import TFRecordsModel

pytestmark = pytest.mark.tf


@pytest.fixture
def records(tmp_path):
    """A file of 100 digits."""
    return own_data_files.digit_records(tmp_path / "digits" / "a.tfrecord", 100)


def made(path, **settings):
    given = {"features": own_data_files.FEATURES, "x": "image", "y": "label", **settings}
    return TFRecordsModel(path=str(path), **given)


@pytest.mark.parametrize(
    ("place", "num_rows"), [("a.tfrecord", 70), ("", 140), ("*.tfrecord", 140)], ids=repr
)
def test_a_file_a_folder_or_a_pattern_is_read(place, num_rows, records):
    shutil.copy(records, records.with_name("b.tfrecord"))
    x, y = made(records.parent / place).load_data({}).train

    assert (x.shape, x.dtype, y.shape) == ((num_rows, 8, 8, 1), np.float32, (num_rows,))


def test_records_come_as_they_were_written(records):
    x, y = made(records, validation_share=0, test_share=0).load_data({}).train

    images, labels = own_data_files.digits(100)
    np.testing.assert_allclose(x[..., 0] * 255, images, atol=1e-4)
    assert y.tolist() == labels.tolist()


def test_compressed_files_are_read(records):
    path = records.with_name("a.gz")
    path.write_bytes(gzip.compress(records.read_bytes()))

    assert len(made(path, compression="GZIP").load_data({}).train[1]) == 70


def test_classes_are_found_in_the_files(records):
    assert made(records).build_model({}).output_shape == (None, 10)


def test_raw_bytes_become_pixels(tmp_path):
    images, labels = own_data_files.digits(20)
    path = write_bytes(tmp_path, images, labels)
    workload = made(path, features=bytes_of([8, 8]), validation_share=0, test_share=0)

    x, _ = workload.load_data({}).train
    np.testing.assert_array_equal(x, images)
    assert workload.build_model({"filters": 2}).input_shape == (None, 8, 8)


def bytes_of(shape):
    return {**own_data_files.FEATURES, "image": {"dtype": "uint8", "shape": shape}}


def write_bytes(folder, images, labels):
    path = folder / "bytes.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for image, label in zip(images, labels, strict=True):
            feature = {
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    return path


def test_bytes_of_another_length_are_told(tmp_path):
    path = write_bytes(tmp_path, *own_data_files.digits(20))
    with pytest.raises(WorkloadError, match=r"bytes\.tfrecord cannot be read as .*shape"):
        made(path, features=bytes_of([8, 9])).load_data({})


@pytest.mark.parametrize(
    ("place", "match"),
    [
        pytest.param("nowhere.tfrecord", "there is no file .*nowhere.tfrecord", id="no file"),
        pytest.param("no*", "there is no file .*no\\*", id="pattern"),
        pytest.param("..", "the folder .* holds no .tfrecord", id="empty folder"),
    ],
)
def test_files_that_are_not_there_are_told_before_training(place, match, records):
    with pytest.raises(WorkloadError, match=match):
        made(records.parent / place).check_data()


LABEL = own_data_files.FEATURES["label"]
UNREADABLE = {  # the file's bytes, its features, what the message names besides the file
    "no such feature": (bytes, {"picture": own_data_files.FEATURES["image"]}, "picture"),
    "another shape": (bytes, {"image": {"dtype": "float32", "shape": [9, 9]}}, "image"),
    "broken": (lambda given: given[:-5], {}, "truncated record"),
    "no records": (lambda given: b"", {}, "holds no records"),
}


@pytest.mark.parametrize(("change", "features", "match"), UNREADABLE.values(), ids=UNREADABLE)
def test_records_that_cannot_be_read_are_told_by_their_file(change, features, match, records):
    records.write_bytes(change(records.read_bytes()))
    features = {**(features or own_data_files.FEATURES), "label": LABEL}
    with pytest.raises(WorkloadError, match=rf"a\.tfrecord .*{match}"):
        made(records, features=features, x=next(iter(features))).load_data({})


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        pytest.param({"x": "imag"}, "x: must be one of .*did you mean 'image'", id="x"),
        pytest.param(
            {"features": {}}, "features: must hold at least one, not {}", id="no features"
        ),
        pytest.param(
            {"features": {"image": {"dtype": "float", "shape": [8]}}},
            "features.image.dtype: must be 'float32', 'int64' or 'uint8', not 'float'; did you",
            id="dtype",
        ),
        pytest.param(
            {"features": {"image": {"dtype": "float32", "shape": 8}}},
            r"features.image.shape: .* valid list",
            id="shape",
        ),
    ],
)
def test_bad_features_are_refused(settings, match):
    with pytest.raises(InvalidSettingsError, match=match):
        made("a", **settings)
