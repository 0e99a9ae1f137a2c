"""Timeline of the trials in each slot."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tune_tf.formatting import counted
from tune_tf.report.curves import CurveSegment
from tune_tf.report.plots.axis import TimeUnit
from tune_tf.report.plots.outcome_style import STYLES
from tune_tf.report.plots.picture import (
    Plot,
    escape_plotly_text,
    label_axes,
    legend,
    styled,
    typed,
)
from tune_tf.report.sweep_record import SweepRecord

_ROUNDING_S = 1.0
_HALF = 0.4


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

    def __init__(self, record: SweepRecord) -> None:
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

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        axes = styled(figure.subplots(), grid="x")
        for outcome, indices in self.record.groups:
            x, width, slots, _ = self._columns(indices)
            polygon = [
                [(at, s - _HALF), (at + w, s - _HALF), (at + w, s + _HALF), (at, s + _HALF)]
                for at, w, s in zip(x, width, slots, strict=True)
            ]
            axes.add_collection(
                PolyCollection(
                    polygon,
                    facecolors=STYLES[outcome].colour,
                    edgecolors="white",
                    linewidths=0.4 if len(self._bars) < 300 else 0,
                    rasterized=len(self._bars) > 1000,
                    label=STYLES[outcome].word,
                )
            )
        axes.autoscale_view()
        axes.set_ylim(len(self._slots) - 0.4, -0.6)
        every = max(1, len(self._slots) // 30)
        places = list(range(0, len(self._slots), every))
        axes.set_yticks(places, labels=[self._slots[at] for at in places], parse_math=False)
        label_axes(axes, self._unit.label)
        legend(axes, loc="lower left", bbox_to_anchor=(0, 1), ncols=8)

    def interactive(self) -> dict[str, Any]:
        """Return the plot as a plotly.js figure."""
        data = []
        for outcome, indices in self.record.groups:
            x, width, slots, numbers = self._columns(indices)
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": STYLES[outcome].word,
                    "base": typed(x),
                    "x": typed(width),
                    "y": typed(slots, "i4"),
                    "width": 2 * _HALF,
                    "customdata": typed(numbers, "i4"),
                    "marker": {"color": STYLES[outcome].colour, "line": {"width": 0}},
                    "hovertemplate": f"trial %{{customdata}}, {STYLES[outcome].word}<br>"
                    f"%{{base:.3~f}} + %{{x:.3~f}} {self._unit.name}<extra></extra>",
                }
            )
        every = max(1, len(self._slots) // 30)
        places = list(range(0, len(self._slots), every))
        layout = {
            "barmode": "overlay",
            "xaxis": {"title": {"text": self._unit.label}, "zeroline": False},
            "yaxis": {
                "tickvals": places,
                "ticktext": [escape_plotly_text(self._slots[at]) for at in places],
                "range": [len(self._slots) - 0.4, -0.6],
                "automargin": True,
                "zeroline": False,
            },
            "hovermode": "closest",
        }
        return {"data": data, "layout": layout}

    def _columns(self, indices: list[int]) -> tuple[list[float], list[float], list[int], list[int]]:
        """Return start, duration, slot and trial number of the bars of trials."""
        chosen = set(indices)
        bars = [bar for bar in self._bars if bar.trial in chosen]
        start, unit = self.record.start_s, self._unit.seconds
        return (
            [(bar.segment.start_s - start) / unit for bar in bars],
            [(bar.segment.end_s - bar.segment.start_s) / unit for bar in bars],
            [bar.slot for bar in bars],
            [self.record.trials[bar.trial].number for bar in bars],
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
