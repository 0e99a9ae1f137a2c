"""Plot of how a workload scales."""

from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from tune_tf.estimate.scaling.candidates import Measurement
from tune_tf.report.plots.chart import label_axes, styled
from tune_tf.report.plots.outcome_style import GRID, INK, MUTED

# Colours of https://jfly.uni-koeln.de/color/; markers, so that colour is not the only cue.
_STYLES = (
    ("#2484C6", "o"),
    ("#E69F00", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#D55E00", "v"),
    ("#9A4F96", "P"),
)
_TEXT_HEIGHT = 0.035  # relative to the height of the axes


class ScalingPicture:
    """Plot of rows per second over devices, batch sizes and amounts of data, side by side.

    Args:
        measurements: All measurements; the first is the reference: one replica on one device.
    """

    height = 520

    def __init__(self, name: str, measurements: Sequence[Measurement], *, on_gpus: bool) -> None:
        self.title = f"How {name} scales"
        self._reference = measurements[0]
        self._good = [each for each in measurements if not each.error]
        self._device = "GPUs" if on_gpus else "CPU cores"

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        devices, batches, data = figure.subplots(1, 3)
        self._draw_devices(styled(devices))
        self._draw_line(
            styled(batches), "batch", "rows of a batch", [it.batch_size for it in self._of("batch")]
        )
        self._draw_line(
            styled(data), "data", "rows of training data", [it.num_rows for it in self._of("data")]
        )
        titles = (
            "more devices for a trial",
            "other batch sizes (grey: the sweep's)",
            "less data (grey: all)",
        )
        for axes, title in zip((devices, batches, data), titles, strict=True):
            axes.set_title(title, color=INK, fontsize=12, loc="left")
            axes.set_ylim(bottom=0)
            axes.margins(x=0.12)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))

    def _of(self, dimension: str) -> list[Measurement]:
        """Return the successful measurements of a dimension, and the reference."""
        return [
            each
            for each in self._good
            if each is self._reference or each.candidate.dimension == dimension
        ]

    def _draw_devices(self, axes: Axes) -> None:
        families: dict[str, list[Measurement]] = {}
        for each in self._of("devices")[1:]:
            families.setdefault(each.candidate.family, [self._reference]).append(each)
        numbers = sorted({each.candidate.num_devices for each in self._of("devices")})
        one = self._reference.rows_per_s
        axes.plot(
            numbers,
            [one * number for number in numbers],
            color=MUTED,
            linestyle="--",
            linewidth=1.2,
            label=f"linear speed-up from one {self._device[:-1]}",
        )
        for (colour, marker), (family, members) in zip(
            cycle(_STYLES), families.items(), strict=False
        ):
            _points(
                axes,
                [each.candidate.num_devices for each in members],
                members,
                colour=colour,
                marker=marker,
                label=family,
            )
        if not families:
            _points(axes, [1], [self._reference], colour=_STYLES[0][0], marker="o", label="")
        axes.set_xticks(numbers)
        top = 1.3 * max(one * numbers[-1], *(max(each.rates) for each in self._of("devices")), 0)
        axes.set_ylim(top=top)  # leaves space for the legend
        self._annotate_efficiencies(axes, top)
        label_axes(axes, f"{self._device} (at a point: efficiency)", "rows a second")
        axes.legend(loc="best", frameon=False, labelcolor=INK, fontsize=10)

    def _annotate_efficiencies(self, axes: Axes, top: float) -> None:
        """Write each efficiency beside its point, stacked where points are close."""
        lowest: dict[int, float] = {}
        for each in sorted(self._of("devices")[1:], key=lambda it: it.rows_per_s):
            number = each.candidate.num_devices
            y = max(each.rows_per_s, lowest.get(number, 0.0))
            lowest[number] = y + _TEXT_HEIGHT * top
            axes.annotate(
                f"{each.efficiency:.0%}",
                (number, y),
                xytext=(7, 3),
                textcoords="offset points",
                color=MUTED,
                fontsize=9,
            )

    def _draw_line(self, axes: Axes, dimension: str, label: str, positions: Sequence[int]) -> None:
        members = self._of(dimension)
        order = sorted(range(len(members)), key=lambda index: positions[index])
        _points(
            axes,
            [positions[index] for index in order],
            [members[index] for index in order],
            colour=_STYLES[0][0],
            marker="o",
            label="",
        )
        reference = positions[members.index(self._reference)]
        axes.axvline(reference, color=GRID, linewidth=6, zorder=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(positions), labels=[f"{each:,}" for each in sorted(positions)])
        axes.xaxis.set_minor_formatter(NullFormatter())
        label_axes(axes, label)


def _points(
    axes: Axes,
    positions: Sequence[float],
    measurements: Sequence[Measurement],
    *,
    colour: str,
    marker: str,
    label: str,
) -> None:
    """Draw medians as a line, with the range of the rounds as error bars."""
    medians = [each.rows_per_s for each in measurements]
    low = [each.rows_per_s - min(each.rates) for each in measurements]
    high = [max(each.rates) - each.rows_per_s for each in measurements]
    axes.errorbar(
        positions,
        medians,
        yerr=[low, high],
        color=colour,
        marker=marker,
        markersize=6,
        linewidth=1.8,
        elinewidth=1,
        capsize=3,
        label=label or None,
    )
