"""Timeline of the trials in each slot."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tune_tf.formatting import counted
from tune_tf.report.plots.axis import Axis, TimeUnit, options_axis
from tune_tf.report.plots.chart import Bars, Chart, Panel
from tune_tf.report.plots.outcome_style import STYLES, OutcomeStyle
from tune_tf.report.plots.plot import NothingToDrawError, Plot
from tune_tf.report.report_data import CurveSegment, ReportData

_ROUNDING_S = 1.0


@dataclass(frozen=True)
class Bar:
    """Segment of a trial (an index) in a slot (a row, from 0)."""

    trial: int
    slot: int
    segment: CurveSegment


def plot_timeline(record: ReportData) -> Plot:
    """Plot one row per slot and one bar per trial segment, coloured by outcome."""
    bars, slot_names = slot_bars([curve.segments for curve in record.curves])
    if not bars:
        raise NothingToDrawError("no trial's folder says when it ran")
    unit = TimeUnit.of(record.wall_s)
    series = [
        _series(record, unit, STYLES[outcome], [bar for bar in bars if bar.trial in trials])
        for outcome, trials in ((outcome, set(indices)) for outcome, indices in record.groups)
    ]
    step = max(1, len(slot_names) // 30)
    labels = ["" if row % step else name for row, name in enumerate(slot_names)]
    # The first slot is on top.
    slots = replace(options_axis("", labels), low=len(labels) - 0.4, high=-0.6)
    caption = (
        f"Each row is one of {counted(len(slot_names), 'slot')}, a place where one trial at a "
        "time ran, and each bar a trial. Gaps are time in which a slot trained nothing: "
        "starting a process, or waiting. Times are known to the second."
    )
    chart = Chart([Panel(Axis(unit.label), slots, series)], record.crowded)
    return Plot(caption, chart, height=int(np.clip(180 + 28 * len(slot_names), 320, 900)))


def _series(record: ReportData, unit: TimeUnit, style: OutcomeStyle, bars: Sequence[Bar]) -> Bars:
    segments = [bar.segment for bar in bars]
    return Bars(
        name=style.word,
        colour=style.colour,
        places=[bar.slot for bar in bars],
        starts=[(each.start_s - record.start_s) / unit.seconds for each in segments],
        lengths=[(each.end_s - each.start_s) / unit.seconds for each in segments],
        horizontal=True,
        hover=f"trial %{{customdata}}, {style.word}<br>%{{base:.3~f}} + %{{x:.3~f}} {unit.name}",
        numbers=[record.trials[bar.trial].number for bar in bars],
    )


def slot_bars(segments: Sequence[Sequence[CurveSegment]]) -> tuple[list[Bar], list[str]]:
    """Assign the segments of trials to slots; return the bars and the names of the slots.

    A process runs one trial at a time, and a slot holds one process at a time. When a process ends,
    the next one on its host takes the first free slot, so there are as many slots as concurrent
    processes.
    """
    by_process: dict[str, list[tuple[int, CurveSegment]]] = {}
    for trial, trial_segments in enumerate(segments):
        for segment in trial_segments:
            by_process.setdefault(segment.process, []).append((trial, segment))
    processes = sorted(map(_without_overlap, by_process.values()), key=_start)
    bars: list[Bar] = []
    slots: list[tuple[str, int]] = []  # host, and number on the host
    free_from_s: list[float] = []
    for process in processes:
        first, last = process[0][1], process[-1][1]
        free = (
            slot
            for slot, (host, _) in enumerate(slots)
            if host == first.host and free_from_s[slot] <= first.start_s + _ROUNDING_S
        )
        slot = next(free, len(slots))
        if slot == len(slots):
            slots.append((first.host, sum(host == first.host for host, _ in slots) + 1))
            free_from_s.append(last.end_s)
        free_from_s[slot] = last.end_s
        bars += [Bar(trial, slot, segment) for trial, segment in process]
    order = sorted(range(len(slots)), key=slots.__getitem__)
    rows = {slot: row for row, slot in enumerate(order)}
    names = [f"{slots[slot][0]} slot {slots[slot][1]}".strip() for slot in order]
    return [replace(bar, slot=rows[bar.slot]) for bar in bars], names


def _start(process: list[tuple[int, CurveSegment]]) -> tuple[float, str]:
    return process[0][1].start_s, process[0][1].process


def _without_overlap(process: list[tuple[int, CurveSegment]]) -> list[tuple[int, CurveSegment]]:
    """Return the segments of a process in order, shifted where rounded times overlap."""
    shifted: list[tuple[int, CurveSegment]] = []
    for trial, segment in sorted(process, key=lambda each: (int(each[1].end_s), each[0])):
        overlap_s = shifted[-1][1].end_s - segment.start_s if shifted else 0.0
        if overlap_s > 0:
            # Rounding explains at most 1 s; longer overlaps are cut, so that shifts do not add up.
            start_s = segment.start_s + overlap_s
            end_s = max(start_s, segment.end_s + min(overlap_s, _ROUNDING_S))
            shifted.append((trial, replace(segment, start_s=start_s, end_s=end_s)))
        else:
            shifted.append((trial, segment))
    return shifted
