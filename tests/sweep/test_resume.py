"""What a resume leaves of the record before any trial runs: all of it, or nothing to go on from."""

import contextlib
import shutil

import pytest

from tune_tf.errors import InvalidSettingsError, SweepConflictError
from tune_tf.inspection import SweepState, SweepView
from tune_tf.record import SweepHistory
from tune_tf.sweep import run
from tune_tf.sweep.run import extend_sweep, resume_sweep


def extend_below_what_there_is(sweep):
    with pytest.raises(InvalidSettingsError, match="must be at least 4"):
        extend_sweep(sweep.path, {"num_samples": 3})


def resume_with_an_edit(sweep):
    path = sweep.path / "sweep.yaml"
    whole = path.read_text()
    path.write_text(whole.replace("epochs: 9", "epochs: 7", 1))
    with pytest.raises(SweepConflictError, match="was edited since it ran"):
        resume_sweep(sweep.path)
    path.write_text(whole)


@pytest.mark.parametrize("refused", [extend_below_what_there_is, resume_with_an_edit])
def test_a_refused_continuation_leaves_an_ended_sweep_ended(ended, refused):
    before = SweepHistory.read(ended.path)
    refused(ended)
    assert SweepHistory.read(ended.path) == before
    assert SweepView.open(ended.path).state is SweepState.ENDED


def test_a_copy_that_goes_on_has_runs_of_its_own_in_mlflow(sweeps, tmp_path, monkeypatch):
    sweep, driven = sweeps(), []
    sweep.start(0)
    sweep.leave()
    copy = shutil.copytree(sweep.path, tmp_path / "copy" / sweep.path.name)
    for name in ("check_settings", "make_searcher", "plan_sweep"):
        monkeypatch.setattr(run, name, lambda *_, **__: None)
    monkeypatch.setattr(run, "cluster", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(run, "run_trials", lambda folder, *_: driven.append(folder.mlflow_id))
    for path in (copy, sweep.path):
        resume_sweep(path)
    of_copy, of_original = driven
    assert of_copy.startswith(f"{sweep.path.name}-")
    assert of_original == sweep.path.name
