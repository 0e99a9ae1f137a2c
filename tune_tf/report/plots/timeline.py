"""Timeline of the trials in each slot."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tune_tf.formatting import counted
from tune_tf.report.plots.axis import Axis, TimeUnit, options_axis
from tune_tf.report.plots.chart import Bars, Chart, Panel
from tune_tf.report.plots.outcome_style import STYLES, OutcomeStyle
from tune_tf.report.plots.picture import Plot
from tune_tf.report.sweep_record import CurveSegment, ReportData

_ROUNDING_S = 1.0


@dataclass(frozen=True)
class Bar:
    """Segment of a trial (an index) in a slot (a row, from 0)."""

    trial: int
    slot: int
    segment: CurveSegment


class Timeline(Plot):
    """Plot with one row per slot and one bar per trial segment, coloured by outcome."""

    name = "timeline"
    title = "Timeline of slots"

    def __init__(self, record: ReportData) -> None:
        super().__init__(record)
        self._unit = TimeUnit.of(record.wall_s)
        self._bars, self._slots = slot_bars([curve.segments for curve in record.curves])
        self.height = int(np.clip(180 + 28 * len(self._slots), 320, 900))

    @property
    def missing(self) -> str | None:
        """Reason why nothing can be drawn, or None."""
        return None if self._bars else "no trial's folder says when it ran"

    @property
    def reading(self) -> str:
        """Instructions for reading the plot."""
        return (
            f"Each row is one of {counted(len(self._slots), 'slot')}, a place where one trial at a "
            "time ran, and each bar a trial. Gaps are time in which a slot trained nothing: "
            "starting a process, or waiting. Times are known to the second."
        )

    def chart(self) -> Chart:
        """Return the chart."""
        bars = [self._bars_of(STYLES[outcome], set(them)) for outcome, them in self.record.groups]
        every = max(1, len(self._slots) // 30)
        names = ["" if at % every else name for at, name in enumerate(self._slots)]
        slots = replace(
            options_axis("", names), low=len(names) - 0.4, high=-0.6
        )  # the first on top
        return Chart([Panel(Axis(self._unit.label), slots, bars)], self.crowded)

    def _bars_of(self, style: OutcomeStyle, trials: set[int]) -> Bars:
        """Return the bars of trials, given by index."""
        bars = [bar for bar in self._bars if bar.trial in trials]
        start, unit = self.record.start_s, self._unit
        return Bars(
            name=style.word,
            colour=style.colour,
            places=[bar.slot for bar in bars],
            starts=[(bar.segment.start_s - start) / unit.seconds for bar in bars],
            lengths=[(bar.segment.end_s - bar.segment.start_s) / unit.seconds for bar in bars],
            horizontal=True,
            hover=f"trial %{{customdata}}, {style.word}<br>"
            f"%{{base:.3~f}} + %{{x:.3~f}} {unit.name}",
            numbers=[self.record.trials[bar.trial].number for bar in bars],
        )


def slot_bars(segments: Sequence[Sequence[CurveSegment]]) -> tuple[list[Bar], list[str]]:
    """Assign the segments of trials to slots; return the bars and the names of the slots.

    A process runs one trial at a time, and a slot holds one process at a time. When a process ends,
    the next one on its host takes the first free slot, so there are as many slots as concurrent
    processes.
    """
    by_process: dict[str, list[tuple[int, CurveSegment]]] = {}
    for trial, of_trial in enumerate(segments):
        for segment in of_trial:
            by_process.setdefault(segment.process, []).append((trial, segment))
    lives = sorted((_in_turn(life) for life in by_process.values()), key=_birth)
    free: dict[str, list[int]] = {}
    busy: dict[str, list[tuple[float, int]]] = {}
    bars: list[Bar] = []
    slots: list[tuple[str, int]] = []
    for life in lives:
        host = life[0][1].host
        ended = busy.setdefault(host, [])
        while ended and ended[0][0] <= life[0][1].start_s + _ROUNDING_S:
            heapq.heappush(free.setdefault(host, []), heapq.heappop(ended)[1])
        if free.get(host):
            slot = heapq.heappop(free[host])
        else:
            slot = len(slots)
            slots.append((host, sum(name == host for name, _ in slots) + 1))
        heapq.heappush(ended, (life[-1][1].end_s, slot))
        bars += [Bar(trial, slot, segment) for trial, segment in life]
    order = sorted(range(len(slots)), key=slots.__getitem__)
    row = {slot: place for place, slot in enumerate(order)}
    names = [f"{slots[slot][0]} slot {slots[slot][1]}".strip() for slot in order]
    return [replace(bar, slot=row[bar.slot]) for bar in bars], names


def _birth(life: list[tuple[int, CurveSegment]]) -> tuple[float, str]:
    return life[0][1].start_s, life[0][1].process


def _in_turn(life: list[tuple[int, CurveSegment]]) -> list[tuple[int, CurveSegment]]:
    """Return the segments of a process in order, shifted where rounded times overlap."""
    turn: list[tuple[int, CurveSegment]] = []
    for trial, segment in sorted(life, key=lambda each: (int(each[1].end_s), each[0])):
        late = turn[-1][1].end_s - segment.start_s if turn else 0.0
        moved = segment
        if late > 0:
            # Rounding explains at most 1 s; longer overlaps are cut, so that shifts do not add up.
            shift = min(late, _ROUNDING_S)
            start = segment.start_s + late
            moved = replace(segment, start_s=start, end_s=max(start, segment.end_s + shift))
        turn.append((trial, moved))
    return turn
