"""Progress of a sweep as a line of text."""

from types import SimpleNamespace

from sweep_in_progress import SweepInProgress

from tune_tf.inspection import SweepView
from tune_tf.outcome import Outcome
from tune_tf.sweep.callbacks.progress import ProgressLines, progress_line


def test_the_line_counts_all_trials_and_names_the_best_of_them(tmp_path):
    sweep = SweepInProgress(tmp_path, constraints={"size": "<= 5"})
    for number in range(3):
        sweep.start(number)
    sweep.create(3)
    sweep.report(0, 0.5, done=Outcome.COMPLETED, size=1)
    sweep.end(0)
    sweep.report(1, 0.9, size=9)  # it violates the constraint
    sweep.report(2, 0.7, size=1)
    sweep.diary.record_pause("63e30f00")
    text = progress_line(SweepView.open(sweep.path))
    assert text.startswith("1/8 trials, ")
    assert "; 1 running, 1 pending, 1 paused, 1 completed; best val_accuracy 0.5 by tr" in text


def test_a_line_is_printed_every_ten_seconds(tmp_path, capsys):
    sweep, now = SweepInProgress(tmp_path), [0.0]
    progress = ProgressLines(sweep.folder.config, clock=lambda: now[0])
    in_bucket = {"experiment_fs_path": "bucket/sweeps", "experiment_dir_name": sweep.path.name}
    for now[0], place in {
        0.0: {},
        9.0: {},
        10.0: {"experiment_fs_path": str(sweep.path)},
        19.0: {},
        20.0: in_bucket,
    }.items():
        progress.on_step_end([SimpleNamespace(storage=SimpleNamespace(**place))])
    assert capsys.readouterr().out.count("small: 0/8 trials") == 2
