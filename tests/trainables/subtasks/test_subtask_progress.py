"""What subtasks reported, and what follows for their trial."""

import json
import math

import pytest

from tune_tf.trainables.subtasks.progress import SubtaskResults, best_subtask, has_diverged, summary


@pytest.fixture
def results():
    """Return two subtasks, of which one ended by itself after two epochs."""
    made = SubtaskResults(2)
    for epoch in (1, 2, 3):
        made.add(0, epoch, {"loss": 1 / epoch}, ended=False)
    for epoch in (1, 2):
        made.add(1, epoch, {"loss": 2 / epoch}, ended=epoch == 2)
    return made


def test_an_iteration_is_complete_when_all_have_done_it(results):
    assert [results.is_complete(iteration) for iteration in (1, 3, 4)] == [True, True, False]


def test_a_subtask_that_ended_counts_with_its_last_metrics(results):
    assert results.of(3) == [{"loss": 1 / 3}, {"loss": 1.0}]


def test_forget_keeps_metrics_that_an_iteration_needs(results):
    results.forget(3)

    assert results.of(3) == [{"loss": 1 / 3}, {"loss": 1.0}]
    assert [results.last_epoch(subtask) for subtask in (0, 1)] == [3, 2]


def test_results_survive_json(results):
    again = SubtaskResults.of_plain(json.loads(json.dumps(results.plain())))

    assert again.plain() == results.plain()
    assert again.has_ended(1, by=2)


def test_results_up_to_a_state_know_nothing_later(results):
    kept = results.up_to({0: 2, 1: 1})

    assert [kept.last_epoch(subtask) for subtask in (0, 1)] == [2, 1]
    assert not kept.has_ended(1, by=9)


def test_a_trial_reports_mean_and_sample_deviation():
    told = summary([{"loss": 1.0}, {"loss": 2.0}, {"loss": 6.0}], "fold")

    assert told == {
        "loss": 3.0,
        "loss_std": pytest.approx(math.sqrt(7)),
        "fold_0/loss": 1.0,
        "fold_1/loss": 2.0,
        "fold_2/loss": 6.0,
    }


def test_a_metric_of_some_subtasks_has_no_mean():
    assert "extra" not in summary([{"loss": 1.0, "extra": 1.0}, {"loss": 2.0}], "fold")


@pytest.mark.parametrize("bad", [(math.nan, 1.0), (math.inf, -math.inf)], ids=str)
def test_one_diverged_subtask_makes_the_mean_no_number(bad):
    told = summary([{"loss": loss} for loss in bad], "fold")

    assert has_diverged(told)
    assert "loss_std" not in told


def test_the_best_has_the_lowest_validation_loss():
    metrics = [{"loss": 1.0, "val_loss": math.nan}, {"loss": 9.0, "val_loss": 2.0}]

    assert best_subtask(metrics) == 1
    assert best_subtask([{"loss": 2.0}, {"loss": 1.0}]) == 1
