from pathlib import Path

from forecasts import actuals, forecast
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.forecast import ForecastWithActuals, Range, write_actuals
from tune_tf.report.page import ForecastTable, render_report
from tune_tf.report.report_data import ReportData

FORECAST = forecast(
    memory_bytes=Range(1e9, 2e9, 3e9),
    trials=Range.exactly(1),
    epochs=Range(1, 2, 3),
    wall_s=Range(60, 90, 120),
    closing_s=Range(0, 30, 60),
)
ACTUALS = actuals(wall_s=120.0, trials=1, epochs=4, memory_bytes=1.5e9, closed=False)


def record_of(folder: Path, settled: ForecastWithActuals | None) -> ReportData:
    result = sweep_on_disk(folder, [Told([0.5, 0.6])])
    if settled is not None:
        write_actuals(result.path, settled)
    return ReportData.of(result)


def test_a_sweep_without_forecast_has_no_table(tmp_path):
    record = record_of(tmp_path, None)
    assert ForecastTable.of(record) is None
    assert "forecast was off" not in render_report(record, [])


def test_each_number_stands_beside_its_forecast(tmp_path):
    record = record_of(tmp_path, ForecastWithActuals(FORECAST, ACTUALS))
    table = ForecastTable.of(record)
    assert table.origin == "2026-09-21 10:13, on 2 CPU(s)"
    assert [(expected, actual) for _, expected, actual in table.rows[2:4]] == [
        ("2 (1 to 3)", "4"),
        ("2 GB (1 GB to 3 GB)", "1.5 GB"),
    ]
    page = render_report(record, [])
    assert "How far the forecast was off" in page
    assert (
        "<tr><td>wall time, up to this report</td><td>1 min</td><td>2 min</td>"
        "<td>0.50 <em>(outside its range)</em></td></tr>\n"
        "<tr><td>trials</td><td>1</td><td>1</td><td>1.00</td></tr>\n"
    ) in page
