"""What the report says first."""

from dataclasses import replace

import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.events import SweepFingerprint
from tune_tf.outcome import Outcome
from tune_tf.report.report_data import ReportData
from tune_tf.report.summary import Summary

STOPPED = Outcome.PRUNED


@pytest.fixture
def summary(tmp_path):
    """Return the summary on told trials."""

    def of(*told, **settings):
        return Summary.of(ReportData.of(sweep_on_disk(tmp_path, told, **settings)))

    return of


def test_the_best_is_compared_with_the_median_of_the_completed(summary):
    found = summary(Told([0.5]), Told([0.25]), Told([1.0]), Told([0.0], STOPPED))
    assert found.headline == "Best val_accuracy: 1, by trial 2."
    assert found.comparison == "The median of 3 completed trials is 0.5: the best is 0.5 better."


def test_the_best_has_its_test_metrics(tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.5]), Told([1.0])])
    tested = replace(result.trials[1], test_metrics={"test_loss": 0.25, "test_accuracy": 0.75})
    result = replace(result, trials=(result.trials[0], tested))
    assert Summary.of(ReportData.of(result)).headline == (
        "Best val_accuracy: 1, by trial 1. On the test rows, which no trial has seen: "
        "test_accuracy 0.75, test_loss 0.25."
    )


def test_frozen_layers_are_counted_by_what_they_save_or_why_they_are_not_shared(summary):
    shared, reason = "shared on this node: 1 MB of outputs", "not shared: flip draws random numbers"
    told = [Told([0.5], results={"perf/frozen_layers": text}) for text in (shared, reason, shared)]
    assert summary(*told, Told([0.5])).frozen_layers == (
        f"Frozen layers: 2 trials {shared}; 1 trial {reason}."
    )


def test_reasons_are_told_beside_many_kinds_of_frozen_layers_that_are_shared(summary):
    texts = [f"shared on this node: {size} kB" for size in range(9)] + ["not shared: no room"]
    told = [Told([0.5], results={"perf/frozen_layers": text}) for text in texts]
    found = summary(*told).frozen_layers
    assert found.count("shared on this node") == 3
    assert found.endswith("; 1 trial not shared: no room; tune-tf show has those of other trials.")


def test_nothing_is_told_of_frozen_layers_without_any(summary):
    assert summary(Told([0.5])).frozen_layers == ""


def test_a_best_epoch_before_the_last_is_named(tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.5]), Told([1.0, 0.5])])
    kept = replace(result.trials[1], metrics={"val_accuracy": 1.0}, kept_iteration=1)
    headline = Summary.of(ReportData.of(replace(result, trials=(kept,)))).headline
    assert headline == "Best val_accuracy: 1, by trial 1 in iteration 1 of 2."


def test_a_lead_within_the_noise_of_single_epochs_is_told(summary):
    noisy = [0.5, 0.6] * 5
    found = summary(Told([*noisy, 0.62]), Told([*noisy, 0.6]), Told([*noisy, 0.5]), Told([0.1]))
    assert "The first 2 are closer than" in found.comparison
    assert "(0.1, median)" in found.comparison


def test_a_lead_beyond_the_noise_of_single_epochs_is_not_questioned(summary):
    quiet = [0.5] * 12
    assert "closer" not in summary(Told([*quiet, 0.62]), Told([*quiet, 0.6])).comparison


def test_better_is_less_where_the_metric_is_minimised(summary):
    found = summary(Told([3.0]), Told([1.0]), objective={"metric": "loss", "mode": "min"})
    assert found.comparison.endswith("is 2: the best is 1 better.")


def test_one_trial_is_compared_with_nothing(summary):
    assert summary(Told([1.0])).comparison == "There is no other trial to compare it with."


def test_trials_are_counted_by_how_they_ended(summary):
    found = summary(Told([1.0]), Told([0.1], STOPPED), Told([0.1], STOPPED), Told([], Outcome.OOM))
    assert found.outcomes == (
        "4 trials: 1 completed, 1 ran out of memory, 2 stopped early by the scheduler."
    )


def test_what_early_stopping_saved_counts_only_what_the_scheduler_stopped(summary):
    found = summary(Told([0.1] * 9), Told([0.1] * 3, STOPPED), Told([0.1], Outcome.ERROR))
    assert found.cost == (
        "13 iterations trained in 18 s (26 s of training in all trials). Early stopping saved 6 "
        "iterations: all trials run to their limit of 9 would have taken 27, so it trained 48% of "
        "that."
    )


def test_nothing_is_said_to_be_saved_where_nothing_was_stopped(summary):
    assert "saved" not in summary(Told([0.1] * 9)).cost


def test_what_failed_alike_is_told_once(summary):
    found = summary(
        Told([], Outcome.ERROR, cause="OSError: disk"),
        Told([], Outcome.ERROR, cause="OSError: disk"),
        Told([], Outcome.OOM),
    )
    told = [(failure.cause, failure.numbers) for failure in found.failures]
    assert told == [("OSError: disk", (0, 1)), ("unknown cause", (2,))]


@pytest.mark.parametrize(
    ("options", "value", "note"),
    [
        ([16, 32, 64], 64, "the largest of its options: consider larger ones"),
        ([64, 16, 32], 16, "the smallest of its options: consider smaller ones"),
        ([16, 32, 64], 32, ""),
        ([16, 32], 32, ""),
        ([16, 32, "auto"], 32, ""),
        ([False, True], True, ""),
    ],
)
def test_a_best_option_at_an_end_of_several_numbers_is_noted(summary, options, value, note):
    space = {"width": {"choice": options}}
    (setting,) = summary(Told([1.0], config={"width": value}), space=space).settings
    assert setting.note == note


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (1e-4, "at the lower end of its range: consider widening it"),
        (1e-2, ""),
        (0.099, "at the upper end of its range: consider widening it"),
    ],
)
def test_a_best_value_at_an_end_of_its_range_is_noted(summary, value, note):
    space = {"rate": {"loguniform": [1e-4, 1e-1]}}
    (setting,) = summary(Told([1.0], config={"rate": value}), space=space).settings
    assert setting.searched == "0.0001 to 0.1, logarithmic"
    assert setting.note == note


def test_the_fingerprint_of_a_reproducible_sweep_is_told(tmp_path):
    result = sweep_on_disk(tmp_path, [Told([0.5])])
    assert Summary.of(ReportData.of(result)).fingerprint == ""
    found = SweepFingerprint("7144807a4add01ec", 104, {"keras": "3.15", "slots": "4"})
    text = Summary.of(ReportData.of(replace(result, fingerprint=found))).fingerprint
    assert text == "Fingerprint 7144807a4add01ec: 104 results, with keras 3.15, slots 4."
