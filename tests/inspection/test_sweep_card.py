"""A sweep as a notebook draws it."""

import re
from xml.etree import ElementTree as ET

import pytest

from tune_tf.inspection import SweepView
from tune_tf.inspection.sweep_card import sweep_card
from tune_tf.outcome import Outcome


def seen(sweep):
    return SweepView.of(sweep.folder, clock=lambda: sweep.now)


def text_of(html):
    return "".join(
        ET.fromstring(
            html.replace("&nbsp;", " ").replace("&rarr;", "to").replace("&#9632;", "")
        ).itertext()
    )


def test_a_card_tells_of_the_trials_and_the_best_one(ended):
    expected = text_of(sweep_card(seen(ended)))
    assert "ended, 4/8 trials, 7 epochs" in expected
    assert "4 completed" in expected
    assert "Best val_accuracy 0.8 by trial 2: optimizer=adamw, block/width=10" in expected


def test_a_notebook_draws_a_sweep_that_is_looked_at(ended):
    assert seen(ended)._repr_html_() == sweep_card(seen(ended))


def test_a_sweep_that_has_just_begun_has_a_card(sweep):
    expected = text_of(sweep_card(seen(sweep)))
    assert "running, 0/8 trials, 0 epochs" in expected
    assert "Best" not in expected


def test_the_curve_is_that_of_the_best_value_in_the_order_of_the_ends(sweep):
    for number, value in ((2, 0.4), (0, 0.3), (1, 0.6)):
        sweep.now += 1
        sweep.run(number, value)
    card = sweep_card(seen(sweep))
    assert "0.4 to 0.6" in text_of(card)
    heights = [point.partition(",")[2] for point in re.search('points="(.*?)"', card)[1].split()]
    assert heights[0] == heights[1] != heights[2]


@pytest.mark.parametrize("outcome", [Outcome.PRUNED, Outcome.ERROR])
def test_trials_that_were_not_completed_are_counted_by_their_state(sweep, outcome):
    sweep.run(0, 0.5, outcome=outcome)
    assert f"1 {outcome.value}" in text_of(sweep_card(seen(sweep)))


def test_what_a_config_holds_is_no_markup(sweep):
    sweep.config_of = lambda number: {"optimizer": "<script>", "block": {"width": 8}}
    sweep.run(0, 0.5)
    card = sweep_card(seen(sweep))
    assert "&lt;script&gt;" in card
    assert "<script>" not in card


def test_why_a_sweep_ended_early_is_told(sweep):
    sweep.run(0, 0.5)
    sweep.diary.record_session_end(
        interrupted=False, run_ids={}, ended_early="its budget of 3 epochs is spent"
    )
    sweep.leave()
    assert "Ended early: its budget of 3 epochs is spent" in text_of(sweep_card(seen(sweep)))


def test_why_trials_failed_is_told_once_as_text(sweep):
    for number in (0, 1):
        sweep.start(number)
        sweep.end(number, Outcome.ERROR, "FileNotFoundError: <photos>")
    card = sweep_card(seen(sweep))
    assert "2 trials error: FileNotFoundError: <photos>" in text_of(card)
    assert card.count("FileNotFoundError") == 1
