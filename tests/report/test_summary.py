"""What the report says first."""

from dataclasses import replace

import pytest
from sweeps_on_disk import START_S, Told, sweep_on_disk

from tune_tf.outcome import Outcome
from tune_tf.record import Record, SweepFingerprint
from tune_tf.report.report_data import ReportData
from tune_tf.report.summary import best_parameters, headline, sentences

STOPPED = Outcome.PRUNED


@pytest.fixture
def summary(tmp_path):
    """Return the headline and the sentences on told trials."""

    def of(*told, **settings):
        data = ReportData.of(sweep_on_disk(tmp_path, told, **settings))
        return headline(data), sentences(data)

    return of


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (
            [Told([1.0]), Told([0.1], STOPPED), Told([0.1], STOPPED), Told([], Outcome.OOM)],
            "4 trials: 1 completed, 2 stopped early by the scheduler, 1 ran out of memory.",
        ),
        (
            [Told([0.1] * 9), Told([0.1] * 3, STOPPED), Told([0.1], Outcome.ERROR)],
            "13 epochs trained in 18 s (26 s of training in all trials). Early stopping saved 6 "
            "epochs: all trials run to their limit of 9 would have taken 27, so it trained 48% "
            "of that.",
        ),
        ([Told([0.1] * 9)], "9 epochs trained in 18 s (18 s of training in all trials)."),
    ],
    ids=["outcomes", "saved", "nothing saved"],
)
def test_a_sentence_says_what_there_is_to_say(summary, told, sentence):
    assert sentence in summary(*told)[1]


def test_the_time_of_a_sweep_is_that_in_which_it_ran(tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.1] * 9)])
    now = [START_S + 3600]
    with Record(result.path, clock=lambda: now[0]) as record:
        record.begin_session()
        now[0] += 60
        record.record_suspension(None)
    data = ReportData.of(result)
    assert data.start_s == START_S
    assert "9 epochs trained in 1 min 18 s (18 s of" in " ".join(sentences(data))


def test_a_best_epoch_before_the_last_is_named(tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.5]), Told([1.0, 0.5])])
    kept = replace(result.trials[1], metrics={"val_accuracy": 1.0}, kept_iteration=1)
    assert (
        headline(ReportData.of(replace(result, trials=(kept,))))
        == "Best val_accuracy: 1, by trial 1 in epoch 1 of 2."
    )


OPTIONS = "one of 16, 32, 64"
RANGE = "0.0001 to 0.1, logarithmic"


@pytest.mark.parametrize(
    ("parameter", "value", "searched"),
    [
        ({"choice": [16, 32, 64]}, 64, f"{OPTIONS} (the best is at the upper end of its options"),
        ({"choice": [64, 16, 32]}, 16, "one of 64, 16, 32 (the best is at the lower end"),
        ({"choice": [16, 32, 64]}, 32, OPTIONS),
        ({"choice": [16, 32]}, 32, "one of 16, 32"),
        ({"choice": [16, 32, "auto"]}, 32, "one of 16, 32, auto"),
        ({"choice": [False, True]}, True, "one of False, True"),
        ({"loguniform": [1e-4, 1e-1]}, 1e-4, f"{RANGE} (the best is at the lower end of its range"),
        ({"loguniform": [1e-4, 1e-1]}, 1e-2, RANGE),
        ({"loguniform": [1e-4, 1e-1]}, 0.099, f"{RANGE} (the best is at the upper end"),
        (3, 3, "constant"),
    ],
)
def test_a_best_value_at_an_end_of_what_was_searched_is_noted(tmp_path, parameter, value, searched):
    result = sweep_on_disk(tmp_path, [Told([1.0], config={"p": value})], space={"p": parameter})
    ((_, _, text),) = best_parameters(ReportData.of(result))
    assert text.startswith(searched)
    assert ("consider widening" in text) is ("the best" in searched)


def test_the_fingerprint_of_a_reproducible_sweep_is_said(tmp_path):
    found = SweepFingerprint("7144807a4add01ec", 104, {"keras": "3.15", "slots": "4"})
    result = replace(sweep_on_disk(tmp_path, [Told([0.5])]), fingerprint=found)
    text = sentences(ReportData.of(result))[-1]
    assert text == "Fingerprint 7144807a4add01ec: 104 results, with keras 3.15, slots 4."
