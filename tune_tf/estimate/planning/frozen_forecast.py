"""Forecast of the outputs of frozen layers that the trials of a node share."""

from typing import NamedTuple

from tune_tf.config import SweepConfig
from tune_tf.estimate.planning.measure_trials import TrialMeasurements
from tune_tf.estimate.planning.model_profiles import ModelProfiles, config_text
from tune_tf.forecast import Range
from tune_tf.formatting import bytes_text
from tune_tf.parallelism import Folds
from tune_tf.result_keys import NOT_SHARED


class FrozenForecast(NamedTuple):
    """What is shared, or why nothing is, and the bytes of a trial's outputs; None for none."""

    text: str
    num_bytes: Range | None


def forecast_frozen_layers(
    config: SweepConfig, profiles: ModelProfiles, measured: TrialMeasurements, max_bytes: float
) -> FrozenForecast:
    """Forecast the shared outputs from the shapes of the models; the text is empty without any.

    The measured trials tell what shapes do not: rows that may change, or layers that depend on
    chance. ``max_bytes`` is what the outputs may take on a node.
    """
    models = [each for each in profiles.known if each.frozen_layers]
    if not models:
        return FrozenForecast("", None)
    if obstacle := _settings_obstacle(config) or profiles.frozen_obstacle:
        return FrozenForecast(f"{NOT_SHARED}{obstacle}", None)
    shared = [each for each in models if each.frozen_row_bytes is not None]
    texts = [each.frozen_layers for each in models if each.frozen_row_bytes is None]
    texts += [each for each in measured.frozen_layers if each.startswith(NOT_SHARED)]
    reasons = "; ".join(dict.fromkeys(texts))
    usage = measured.final_usage
    num_rows = usage.total_rows
    if not config.validation.asynchronous:
        num_rows += usage.validation_rows
    all_refused = bool(measured.frozen_layers) and all(
        each.startswith(NOT_SHARED) for each in measured.frozen_layers
    )
    if not shared or all_refused or not num_rows:
        return FrozenForecast(reasons or f"{NOT_SHARED}the number of rows is unknown", None)
    sizes = Range.of(float(num_rows * (each.frozen_row_bytes or 0)) for each in shared)
    if sizes.low > max_bytes:
        size = f"{bytes_text(sizes.low)} of outputs do not fit into {bytes_text(max_bytes)}"
        return FrozenForecast(f"{NOT_SHARED}{size}, half of the object store", None)
    where = "on each node, by fold" if isinstance(config.parallelism, Folds) else "on each node"
    model = profiles.largest if profiles.largest in shared else shared[0]
    text = f"shared {where}: outputs of {model.frozen_layers}"
    if len({each.frozen_layers for each in shared}) > 1:
        text += f" with {config_text(model.config)}"
    return FrozenForecast(f"{text}; in other trials {reasons}" if reasons else text, sizes)


def _settings_obstacle(config: SweepConfig) -> str:
    """Return the setting because of which trials share no outputs; empty if they may."""
    if not config.share_frozen:
        return "share_frozen is false"
    if config.loop == "fit":
        return "loop is fit"
    kind = config.parallelism
    return "" if kind.shares_frozen else f"parallelism {kind.kind} computes the whole model"
