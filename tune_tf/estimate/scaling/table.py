"""Table of scaling measurements for the terminal and the HTML page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tune_tf.estimate.scaling.candidates import Measurement

NARROW = ("cores busy", "start")
"""Columns to leave out on a narrow terminal."""

TITLES = {
    "devices": "more devices",
    "batch": "other batch sizes",
    "data": "less data",
}
HEADERS = (
    "",
    "devices",
    "batch",
    "rows",
    "rows/s",
    "speed-up",
    "efficiency",
    "cores busy",
    "memory",
    "input",
    "start",
)


@dataclass(frozen=True)
class TableRow:
    """Row of the scaling table: a cell per header, or an ``error`` instead of numbers."""

    cells: tuple[str, ...]
    error: str = ""
    is_reference: bool = False


def table_of(measurements: Sequence[Measurement]) -> Iterator[tuple[str, list[TableRow]]]:
    """Yield the title and the rows of each group; the first measurement is the reference."""
    for dimension, title in TITLES.items():
        rows = [
            _row(each, is_reference=each is measurements[0])
            for each in measurements
            if each.candidate.dimension == dimension
        ]
        if rows:
            yield title, rows


def how_measured(rounds: int, *, used: int, total: int) -> tuple[str, ...]:
    """Return sentences that explain numbers from the first ``used`` of ``total`` training rows."""
    part = f" Here, all data are the first {used:,} of {total:,} rows." if used < total else ""
    return (
        f"Each line was trained in separate processes, warmed up, and then measured {rounds} "
        "times in turn with the others. rows/s is the median: training rows a second, without "
        f"validation.{part}",
        "speed-up compares with one replica on one device in the same round; the number after it "
        "is how far the rounds deviate from it. efficiency is the speed-up divided by the "
        "devices used.",
        "cores busy is CPU time a second. memory is the most that the processes on this machine "
        "used, about 0.6 GB of each for TensorFlow itself. start is from a fresh process to the "
        "end of the first epoch.",
        "input is the share of time that preparing rows takes. The data are on the devices, so "
        "nothing waits for a pipeline: the same loop was run again without the model, which "
        "shows what selecting rows and per_example take of an epoch, at most. For several "
        "replicas it was measured on the share of one.",
    )


def _row(measurement: Measurement, *, is_reference: bool) -> TableRow:
    candidate = measurement.candidate
    name, devices = candidate.label, str(candidate.num_devices)
    if measurement.error:
        return TableRow((name, devices, *[""] * (len(HEADERS) - 2)), measurement.error)
    efficiency = f"{measurement.efficiency:.0%}" if candidate.dimension == "devices" else ""
    share = measurement.input_share
    cores = measurement.busy_cores
    cells = (
        name,
        devices,
        f"{measurement.batch_size:,}",
        f"{measurement.num_rows:,}",
        f"{measurement.rows_per_s:,.0f}",
        "1" if is_reference else f"{measurement.speed_up:.2f} ±{measurement.doubt:.2f}",
        efficiency,
        "-" if cores is None else f"{cores:.1f}",
        _memory(measurement),
        "-" if share is None else f"{share:.0%}",
        f"{measurement.start_s:.0f} s",
    )
    return TableRow(cells, is_reference=is_reference)


def _memory(measurement: Measurement) -> str:
    own, gpu = measurement.memory_bytes, measurement.gpu_memory_bytes
    text = "-" if own is None else f"{own / 1e9:.1f} GB"
    return text if gpu is None else f"{text}, GPU {gpu / 1e9:.1f} GB"
