"""A checkpoint whose state of the best epoch a kill has cut off is not intact."""

import json
import shutil

import numpy as np
import pytest
from pyarrow import fs

from tune_tf.sweep.storage import SweepStorage


@pytest.fixture
def checkpoint(tmp_path):
    """The folder of a whole checkpoint with a best epoch of its own."""
    (tmp_path / "kept").mkdir()
    for path in (tmp_path / "trial.npz", tmp_path / "kept" / "trial.npz"):
        np.savez(path, head=np.array(json.dumps({"epoch": 3})))
    index = {"iteration": 2, "metrics": {"loss": 1.0}, "files": ["trial.npz"]}
    (tmp_path / "kept.json").write_text(json.dumps(index))
    return tmp_path


def is_intact(folder, *, keeps_best=True):
    storage = SweepStorage(fs.LocalFileSystem(), str(folder.parent), keeps_best=keeps_best)
    return storage.is_intact(str(folder))


def test_a_whole_one_is_intact(checkpoint):
    assert is_intact(checkpoint)
    assert is_intact(checkpoint, keeps_best=False)


def cut_off(path):
    path.write_bytes(path.read_bytes()[:50])


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda it: (it / "kept.json").unlink(), id="no index"),
        pytest.param(lambda it: shutil.rmtree(it / "kept"), id="no folder"),
        pytest.param(lambda it: (it / "kept" / "trial.npz").unlink(), id="an empty folder"),
        pytest.param(lambda it: cut_off(it / "kept" / "trial.npz"), id="half a state"),
        pytest.param(lambda it: (it / "kept.json").write_text('{"iter'), id="half an index"),
    ],
)
def test_one_that_a_kill_has_cut_off_is_not(damage, checkpoint):
    damage(checkpoint)
    assert not is_intact(checkpoint)
