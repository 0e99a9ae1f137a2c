"""Chunks of rows on their way from the processes that prepare them into one array."""

import errno
import gc
import os
import weakref
from pathlib import Path

import numpy as np
import pytest

from tune_tf.data.prepare.chunk import assemble, chunks
from tune_tf.data.prepare.preparation import _from_table, _to_table

NUM_RECORDS = 7


def row(number):
    if number == 3:
        raise ValueError("no picture")
    return {"image": np.full((2, 5), number, np.uint8), "label": (number, np.zeros(0))}


def made():
    return chunks(0, range(NUM_RECORDS), row, stop_at_failure=False, max_bytes=1)


def test_a_table_holds_a_chunk_exactly():
    for chunk in made():
        (found,) = _from_table(_to_table(chunk))
        np.testing.assert_equal(vars(found), vars(chunk))


def test_memory_is_free_once_a_table_is():
    chunk = next(made())
    image = weakref.ref(chunk.rows["image"])
    table = _to_table(chunk)
    del chunk, table
    gc.collect()
    assert image() is None


def test_rows_beyond_the_limit_are_collected_in_a_file(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    in_memory, in_file = (
        assemble(made(), NUM_RECORDS, stop_at_failure=False, max_memory=limit)
        for limit in (NUM_RECORDS * 18, NUM_RECORDS * 18 - 1)
    )
    maps = Path("/proc/self/maps").read_text()
    assert maps.count(str(tmp_path)) == 2  # images and labels
    np.testing.assert_equal(in_file.rows, in_memory.rows)
    np.testing.assert_array_equal(in_file.rows["image"][:, 0, 0], [0, 1, 2, 4, 5, 6])


def test_a_full_disk_is_an_error(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        assemble(made(), NUM_RECORDS, stop_at_failure=False, max_memory=1)
