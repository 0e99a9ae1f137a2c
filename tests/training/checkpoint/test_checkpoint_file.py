"""The file of a checkpoint: damage, types and what it is written with."""

import json
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tune_tf.errors import CheckpointError
from tune_tf.training.checkpoint import FILE_NAME, Checkpoint

pytestmark = pytest.mark.tf


def flipped(whole):
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]


@pytest.mark.parametrize(
    "damage", [flipped, *(lambda whole, s=s: whole[: int(len(whole) * s)] for s in (0, 0.5, 0.999))]
)
def test_a_truncated_or_changed_file_is_told(damage, folders, tmp_path):
    (tmp_path / FILE_NAME).write_bytes(damage((folders(1) / FILE_NAME).read_bytes()))

    with pytest.raises(CheckpointError, match="is not a complete checkpoint"):
        Checkpoint.read(tmp_path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="there is no checkpoint at"):
        Checkpoint.read(tmp_path)


def test_no_array_of_the_file_is_pickled(folders):
    with np.load(folders(1) / FILE_NAME, allow_pickle=False) as archive:
        assert all(archive[name].dtype != object for name in archive.files)
        assert json.loads(str(archive["head"]))["epoch"] == 2


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_arrays_of_types_that_numpy_lacks_come_back(dtype, folders, tmp_path):
    checkpoint = Checkpoint.read(folders(1))
    array = np.arange(4).astype(getattr(ml_dtypes, dtype))
    replace(checkpoint, model=[array, *checkpoint.model[1:]]).write(tmp_path)

    again = Checkpoint.read(tmp_path).model[0]
    assert again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()


def test_an_error_while_writing_leaves_the_old_file(folders, tmp_path, monkeypatch):
    old = Checkpoint.read(folders(1))
    old.write(tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()

    def half(file, **arrays):
        file.write(b"half of it")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="disk full"):
        old.write(tmp_path)

    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
