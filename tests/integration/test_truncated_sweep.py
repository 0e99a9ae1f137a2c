"""The files of a killed sweep, cut short anywhere, as a loss of power leaves them."""

import random
import shutil
from unittest import mock

import pytest
from terminal import kill, until
from three_systems import assert_truth

from tune_tf.errors import TuneTfError
from tune_tf.inspection import SweepView, list_sweeps
from tune_tf.searchers import OptunaSearcher
from tune_tf.searchers.trial_attrs import tune_trial_id
from tune_tf.space import flatten
from tune_tf.sweep.state.experiment_state import TuneState
from tune_tf.sweep.state.recovery import recover
from tune_tf.sweep.state.snapshots import snapshot_paths
from tune_tf.sweep_folder import SweepFolder
from tune_tf.tracking.writing.spool import SPOOL_FOLDER, Spool
from tune_tf.tune_internals import controller

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

NUM_CUTS = 5


@pytest.fixture(scope="module")
def killed_once(command, write_sweep, tmp_path_factory):
    """The folder of a sweep whose driver was killed while some trials had ended and two ran."""
    root = tmp_path_factory.mktemp("killed")
    write_sweep(root)
    settings = (
        "budget.num_samples=8",
        "epochs=60",
        "checkpoint_interval_s=0",
        "max_concurrent_trials=2",
    )
    process = command("run", "tiny.yaml", "--set", *settings, cwd=root)
    try:
        until(lambda: _is_on_its_way(root), process=process)
    finally:
        kill(process)
    (folder,) = (root / "sweeps").iterdir()
    return folder


@pytest.fixture
def killed(killed_once, tmp_path):
    """The same, which is after each test as it was before."""
    root, kept = killed_once.parents[1], tmp_path / "kept"
    shutil.copytree(root, kept, symlinks=True)
    yield killed_once
    shutil.rmtree(root)
    shutil.copytree(kept, root, symlinks=True)


def _is_on_its_way(root):
    """Whether two trials have ended, and one that has not been at it for long runs."""
    if not list(root.glob("sweeps/*/events.jsonl")):
        return False
    (folder,) = (root / "sweeps").iterdir()
    several = [trial for trial in SweepView.open(folder).trials if len(trial.checkpoints) > 1]
    running = [trial for trial in several if not trial.has_ended and trial.result.iterations < 30]
    return sum(trial.has_ended for trial in several) >= 2 and bool(running)


def signature(recovery):
    """Return what a resume goes on from, as far as a loss would show in it."""
    return {
        trial.trial_id: (
            trial.has_ended,
            trial.last_result.get("training_iteration") if trial.has_ended else None,
            trial.checkpoints[0].iteration if trial.checkpoints else 0,
        )
        for trial in TuneState(recovery.files).trials
    }


def state_files(folder):
    """Return the files that a sweep's folder holds; of trials, those of one of each kind."""
    views = SweepView.open(folder).trials
    ended = [trial for trial in views if trial.has_ended and len(trial.checkpoints) > 1]
    running = [trial for trial in views if not trial.has_ended and trial.checkpoints]
    trials = {trial.folder.name for trial in (ended[0], running[-1])}
    files = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [
        path for path in files if not path.parts[0].startswith("trial_") or path.parts[0] in trials
    ]
    return [path for path in kept if path.name != "log.txt" and (folder / path).stat().st_size]


def look(path):
    """Look at a sweep in all the ways in which the verbs do."""
    view = SweepView.open(path)
    view.to_dict()
    [view.row(trial) for trial in view.trials]
    for trial in view.trials:
        trial.to_dict()
        assert trial.curve("val_accuracy") is not None
        assert isinstance(trial.error, str)
    return view


def test_every_file_of_a_sweep_may_be_cut_at_any_byte(killed, tmp_path, caplog):
    whole = SweepFolder.open(killed)
    wanted = recover(killed, whole.config)
    before = signature(wanted)
    number_of = {trial.trial_id: trial.number for trial in TuneState(wanted.files).trials}
    ended = {trial_id for trial_id, (has_ended, *_) in before.items() if has_ended}
    assert len(ended) >= 2
    assert len(ended) < len(before)
    view = look(killed)
    numbers = [trial.number for trial in view.trials]
    not_begun = {trial.number for trial in view.trials if not trial.result.iterations}
    path = tmp_path / "sweeps" / killed.name
    shutil.copytree(killed, path)
    draw = random.Random(5)
    refused = []
    for name in state_files(killed):
        content = (path / name).read_bytes()
        for size in [draw.randrange(len(content)) for _ in range(NUM_CUTS)]:
            (path / name).write_bytes(content[:size])
            caplog.clear()
            case = f"{name} cut at byte {size} of {len(content)}"
            try:
                folder = SweepFolder.open(path)
                folder.edited()
                found = recover(path, folder.config)
            except TuneTfError as error:
                refused.append(f"{case}: {error}")
                continue
            assert [trial.number for trial in look(path).trials] == numbers, case
            assert len(list_sweeps(path.parent)) == len(list(path.parent.iterdir())), case
            after = signature(found)
            assert {number_of[key] for key in before.keys() - after.keys()} <= not_begun, case
            assert after.keys() <= before.keys(), case
            assert {key for key, (over, *_) in after.items() if over} == ended, case
            if any(before[trial_id] != after[trial_id] for trial_id in after):
                assert found.losses, f"{case}: {before} became {after}"
            for open_by_itself in OPENED.get(name.parts[0], ()):
                open_by_itself(path, found)
        (path / name).write_bytes(content)
    assert not refused


def open_spool(path, recovery):
    shutil.copytree(path / SPOOL_FOLDER, path.parent / SPOOL_FOLDER)
    spool = Spool(path.parent / SPOOL_FOLDER)
    assert all(entry.run is not None for _, entry in spool.read(0, 100_000))
    spool.close()
    shutil.rmtree(path.parent / SPOOL_FOLDER, ignore_errors=True)


def open_study(path, recovery):
    """The study has a trial for each of Tune's, whatever was lost of it."""
    shutil.copytree(path, path.parent / "study")
    try:
        folder = SweepFolder.open(path.parent / "study")
        (name,) = (name for name in recovery.files if name.startswith("searcher-state-"))
        state = folder.path / name
        state.write_bytes(recovery.files[name])
        searcher = OptunaSearcher(
            folder.config.space,
            folder.config.objectives,
            folder.config.searcher.sampler,
            seed=folder.config.searcher.seed,
            storage=folder.study_storage,
            study_name=path.name,
        )
        searcher.restore(state)
        trials = TuneState(recovery.files).trials
        configs = {trial.trial_id: flatten(trial._state["config"]) for trial in trials}
        with mock.patch.multiple(controller, trial_ids=configs.keys, configs=configs.copy):
            assert searcher.suggest("another")
        named = [tune_trial_id(each, {}) for each in searcher.study.trials]
        there = sorted(filter(None, named))  # one that was being asked for has no name yet
        assert there == sorted([*configs, "another"])
    finally:
        shutil.rmtree(path.parent / "study")


OPENED = {SPOOL_FOLDER: (open_spool,), "study.journal": (open_study,)}


def test_a_sweep_goes_on_from_damaged_files_and_runs_no_trial_again(killed, finished):
    """The worst of it at once: the newest state, the study's end, a checkpoint and the settings."""
    path = killed
    view = SweepView.open(path)
    ended = [trial for trial in view.trials if trial.has_ended]
    results = {trial.trial_id: (trial.folder / "result.json").read_bytes() for trial in ended}
    running = next(trial for trial in view.trials if not trial.has_ended and trial.checkpoints)
    newest = snapshot_paths(path)[0]
    for file in (
        newest,
        path / "study.journal",
        path / "sweep.yaml",
        path / "sweep-info",
        running.checkpoints[-1] / "trial.npz",
        *path.glob("experiment_state-*"),
    ):
        file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])
    code, _, err = finished("resume", str(path), "--json", cwd=path.parent.parent, timeout_s=480)

    assert code == 0, err
    assert "Traceback" not in err
    for told in (newest.name, "study journal", "sweep.yaml was truncated", "is damaged"):
        assert told in err
    assert len(assert_truth(path)) == 8
    after = {trial.trial_id: trial for trial in SweepView.open(path).trials}
    for trial_id, text in results.items():
        assert (after[trial_id].folder / "result.json").read_bytes() == text
