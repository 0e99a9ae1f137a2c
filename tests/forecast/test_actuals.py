import pytest
from forecasts import actuals, forecast

from tune_tf.forecast import Range, compare_forecast
from tune_tf.forecast.actuals import bytes_text, deviation_texts, range_text, seconds_text


def of(what, **how):
    return next(
        it for it in compare_forecast(forecast(), actuals(**how)) if it.what.startswith(what)
    )


def test_the_ratio_is_the_forecast_over_what_it_was():
    assert of("wall time").ratio == pytest.approx(100 / 125)
    assert of("wall time").is_within


def test_what_lies_outside_its_range_is_told():
    assert not of("iterations").is_within


def test_forecast_in_an_open_report_excludes_the_report_itself():
    until = of("wall time", closed=False)
    assert until.what == "wall time, up to this report"
    assert until.forecast == Range(75, 90, 130)
    assert of("the sweep's folder", closed=False).forecast == Range(1e6, 1e6, 2e6)


def test_memory_is_compared_only_where_trials_have_told_it():
    whats = [it.what for it in compare_forecast(forecast(), actuals(memory_bytes=None))]
    assert "peak memory of a trial" not in whats
    assert len(whats) == 4


def test_zero_actual_trials_have_no_ratio():
    assert of("trials", trials=0).ratio is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.25 s"), (59.4, "59 s"), (61, "1 min 1 s"), (3600, "1 h"), (100_000, "1 d 3 h")],
)
def test_seconds_are_told_in_two_units(seconds, text):
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 B"), (44_400, "44.4 kB"), (9.24e8, "924 MB"), (1.2e9, "1.2 GB")]
)
def test_bytes_are_told_in_their_unit(count, text):
    assert bytes_text(count) == text


def test_a_range_is_told_with_its_ends_and_a_known_number_alone():
    assert range_text(Range(1, 2, 3), str) == "2 (1 to 3)"
    assert range_text(Range.exactly(2), str) == "2"
    assert deviation_texts(of("wall time")) == (
        "1 min 40 s (1 min 20 s to 2 min 30 s)",
        "2 min 5 s",
    )
