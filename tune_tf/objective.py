"""Objectives: reported metrics with a direction."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tune_tf.errors import InvalidSettingsError, UnknownMetricError, did_you_mean
from tune_tf.validation import validated


@validated
class Objective:
    """A reported metric to minimize or maximize.

    Args:
        metric: Name of the metric. Example: ``val_accuracy``.
        mode: ``"min"`` or ``"max"``, whichever is better.

    Raises:
        InvalidSettingsError: An argument is invalid.
    """

    metric: Annotated[str, Field(min_length=1)]
    mode: Literal["min", "max"]

    def check_given(self, metric: str | None, mode: str | None, owner: str) -> None:
        """Reject a metric or mode of ``tune.run`` that differs; ``owner`` has this objective."""
        if (metric or self.metric, mode or self.mode) != (self.metric, self.mode):
            raise InvalidSettingsError(
                f"tune.run was given metric={metric!r}, mode={mode!r}, but the {owner} was created "
                f"for metric={self.metric!r}, mode={self.mode!r}; leave them out of tune.run"
            )

    def better(self, first: float, second: float) -> bool:
        """Return whether ``first`` is strictly better than ``second``."""
        return first > second if self.mode == "max" else first < second

    def value(self, result: Mapping[str, Any]) -> float:
        """Return the metric's value in a result.

        Raises:
            UnknownMetricError: The result lacks the metric; lists those it has.
        """
        if self.metric not in result:
            raise UnknownMetricError(self.missing(result))
        return float(result[self.metric])

    def missing(self, result: Mapping[str, Any]) -> str:
        """Return the message for a result without the metric."""
        reported = sorted(k for k, v in result.items() if isinstance(v, float | int))
        return (
            f"metric {self.metric!r} is not reported; the trial reports {', '.join(reported)}"
            f"{did_you_mean(self.metric, reported)}"
        )


def likely_mode(metric: str) -> Literal["min", "max"] | None:
    """Return whether a metric of that name is usually minimized or maximized; None if unknown.

    The last telling word decides: ``val_score_loss`` is a loss.
    """
    words = metric.lower().replace("io_u", "iou").split("_")
    modes: list[Literal["min", "max"]] = [
        "max" if word in _MAXIMIZED else "min" for word in words if word in _MAXIMIZED | _MINIMIZED
    ]
    return modes[-1] if modes else None


_MAXIMIZED = frozenset(
    (
        *("acc", "accuracy", "auc", "correlation", "dice", "f1", "fbeta", "iou", "precision", "r2"),
        *("recall", "reward", "score", "sensitivity", "specificity"),
    )
)
_MINIMIZED = frozenset(
    (
        *("crossentropy", "divergence", "error", "hinge", "logcosh", "loss", "mae", "mape", "mse"),
        *("msle", "perplexity", "poisson", "rmse"),
    )
)
