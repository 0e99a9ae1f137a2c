"""Plot of how a workload scales."""

from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from tune_tf.estimate.scaling.candidates import Dimension, Measurement, scaling_curves
from tune_tf.report.plots.chart import label_axes, style_axes
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


class ScalingPlot:
    """Plot of rows per second over devices, batch sizes and amounts of data, side by side.

    The first measurement is the reference: one replica on one device.
    """

    height = 520

    def __init__(self, name: str, measurements: Sequence[Measurement], *, on_gpus: bool) -> None:
        self.title = f"How {name} scales"
        self._reference = measurements[0]
        self._curves = scaling_curves(measurements)
        self._device = "GPUs" if on_gpus else "CPU cores"

    def draw(self, figure: Figure) -> None:
        """Draw the plot on an empty figure."""
        devices, batches, data = map(style_axes, figure.subplots(1, 3))
        self._draw_devices(devices)
        self._draw_line(batches, "batch", "rows of a batch")
        self._draw_line(data, "data", "rows of training data")
        titles = {
            devices: "more devices for a trial",
            batches: "other batch sizes (grey: the sweep's)",
            data: "less data (grey: all)",
        }
        for axes, title in titles.items():
            axes.set_title(title, color=INK, fontsize=12, loc="left")
            axes.set_ylim(bottom=0)
            axes.margins(x=0.12)
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))

    def _draw_devices(self, axes: Axes) -> None:
        families = self._curves["devices"] or {"": [self._reference]}
        others = [each for members in families.values() for each in members[1:]]
        numbers = sorted({each.candidate.num_devices for each in (self._reference, *others)})
        linear = [self._reference.rows_per_s * number for number in numbers]
        axes.plot(
            numbers,
            linear,
            color=MUTED,
            linestyle="--",
            linewidth=1.2,
            label=f"linear speed-up from one {self._device[:-1]}",
        )
        for style, (family, members) in zip(cycle(_STYLES), families.items(), strict=False):
            _draw_curve(axes, members, "devices", style, label=family)
        axes.set_xticks(numbers)
        top = 1.3 * max(linear[-1], *(max(each.rates) for each in (self._reference, *others)))
        axes.set_ylim(top=top)  # leaves space for the legend
        _annotate_efficiencies(axes, others, top)
        label_axes(axes, f"{self._device} (at a point: efficiency)", "rows a second")
        axes.legend(loc="best", frameon=False, labelcolor=INK, fontsize=10)

    def _draw_line(self, axes: Axes, dimension: Dimension, label: str) -> None:
        members = sorted(self._curves[dimension][""], key=lambda each: each.position(dimension))
        _draw_curve(axes, members, dimension, _STYLES[0])
        axes.axvline(self._reference.position(dimension), color=GRID, linewidth=6, zorder=0)
        axes.set_xscale("log", base=2)
        positions = [each.position(dimension) for each in members]
        axes.set_xticks(positions, labels=[f"{each:,}" for each in positions])
        axes.xaxis.set_minor_formatter(NullFormatter())
        label_axes(axes, label)


def _annotate_efficiencies(axes: Axes, measurements: Sequence[Measurement], top: float) -> None:
    """Write each efficiency beside its point, stacked where points are close."""
    lowest: dict[int, float] = {}
    for each in sorted(measurements, key=lambda it: it.rows_per_s):
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


def _draw_curve(
    axes: Axes,
    members: Sequence[Measurement],
    dimension: Dimension,
    style: tuple[str, str],
    label: str = "",
) -> None:
    """Draw medians as a line, with the range of the rounds as error bars."""
    axes.errorbar(
        [each.position(dimension) for each in members],
        [each.rows_per_s for each in members],
        yerr=[
            [each.rows_per_s - min(each.rates) for each in members],
            [max(each.rates) - each.rows_per_s for each in members],
        ],
        color=style[0],
        marker=style[1],
        markersize=6,
        linewidth=1.8,
        elinewidth=1,
        capsize=3,
        label=label or None,
    )
