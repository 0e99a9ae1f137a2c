"""Losses and metrics that parts of a batch give exactly, since they are means or sums over rows.

Others need the whole batch at once: functions and classes of the user, which may do anything;
losses over a batch such as Dice; means whose divisor is that of the whole batch, as with masks.
"""

from typing import Any

import keras

from tune_tf.training.keras_internals import is_of_keras, keras_mask

_losses, _metrics = keras.losses, keras.metrics


def _classes(module: Any, base: type, others: set[type]) -> frozenset[type]:
    found = {each for each in vars(module).values() if isinstance(each, type)}
    return frozenset(each for each in found - others if issubclass(each, base))


ROW_LOSSES = _classes(
    _losses,
    _losses.Loss,
    {
        _losses.Loss,
        _losses.Hinge,  # looks at all labels to know whether these are 0 and 1
        _losses.SquaredHinge,
        _losses.CosineSimilarity,  # its axis may be that of the rows
        _losses.Dice,
        _losses.Tversky,
        _losses.Circle,
    },
)
"""Classes of Keras' losses with a loss a row."""

ROW_METRICS = _classes(
    _metrics,
    _metrics.Metric,
    {
        _metrics.Metric,
        _metrics.Mean,
        _metrics.Sum,
        _metrics.MeanMetricWrapper,
        _metrics.Hinge,
        _metrics.SquaredHinge,
        _metrics.CosineSimilarity,
        _metrics.ConcordanceCorrelation,
        _metrics.PearsonCorrelation,
    },
)
"""Classes of Keras' metrics whose states are sums over rows."""

_F_SCORES = (_metrics.F1Score, _metrics.FBetaScore)  # whose axis is that of their sums
_ROW_FUNCTIONS = frozenset(kind.__name__.lower() for kind in ROW_LOSSES)
_METHODS = ("compute_loss", "compute_metrics", "get_metrics_result", "reset_metrics", "metrics")
_CROSSENTROPIES = ("crossentropy", "ce")


def whole_batch_reason(model: keras.Model) -> str | None:
    """Return what of a built model needs the whole batch at once; None if parts of it suffice."""
    for name in _METHODS:
        if replaces_method(model, name):
            return f"{type(model).__name__}.{name}"
    tracker = loss_tracker(model)
    for metric in model.metrics:
        is_of_compile = metric is tracker or hasattr(metric, "metrics") or is_output_loss(metric)
        if not is_of_compile:
            return f"the metric {metric.name}"
    for variable in model.trainable_variables:
        penalty = variable.regularizer  # one of the user's may move a variable of its own
        if penalty is not None and not is_of_keras(type(penalty)):
            return f"the regularizer of {variable.path}"
    return compiled_reason(model)


def compiled_reason(model: keras.Model) -> str | None:
    """Return the same of what a model was compiled with."""
    for loss in keras.tree.flatten(model.loss):
        if loss is not None and not _is_row_mean(loss):
            return f"the loss {_name(loss)}"
    for collection in model.metrics:
        if not hasattr(collection, "metrics"):
            continue
        if not collection.built:
            return "a metric that is not built"
        for metric in collection.metrics:
            is_over_axis = type(metric) not in _F_SCORES and getattr(metric, "axis", -1) != -1
            if type(metric) not in ROW_METRICS or is_over_axis:
                return f"the metric {metric.name}"
    outputs = getattr(model, "outputs", None) or ()
    return "a mask of its outputs" if is_masked(outputs) else None


def is_masked(outputs: Any) -> bool:
    """Return whether an output has a mask, or no axis but that of the rows.

    The mean over the last axis, as Keras takes it for each row, is then one over rows.
    """
    leaves = keras.tree.flatten(outputs)
    return any(keras_mask(leaf) is not None or len(leaf.shape) < 2 for leaf in leaves)


def replaces_method(model: keras.Model, method: str) -> bool:
    """Return whether a model has another method than Keras' own."""
    return getattr(type(model), method) is not getattr(keras.Model, method) or method in vars(model)


def _is_row_mean(loss: Any) -> bool:
    if isinstance(loss, str):
        if loss.lower() in _CROSSENTROPIES:
            return True
        loss = keras.losses.get(loss)
    if type(loss) not in ROW_LOSSES:
        name = getattr(loss, "__name__", "")  # of the function of a class: kl_divergence
        return getattr(_losses, name, None) is loss and name.replace("_", "") in _ROW_FUNCTIONS
    is_mean = loss.reduction in ("sum_over_batch_size", "mean")
    return (
        is_mean
        and getattr(loss, "axis", -1) == -1
        and getattr(loss, "ignore_class", None) is None  # its mean is over the other rows
    )


def is_output_loss(metric: keras.Metric) -> bool:
    """Return whether a metric is Keras' mean of the loss of one of several outputs."""
    return type(metric) is keras.metrics.Mean and metric.name.endswith("_loss")


def loss_tracker(model: keras.Model) -> Any:
    """Return the metric in which Keras' steps keep the mean of the loss."""
    return keras.Model.metrics.fget(model)[0]


def _name(loss: Any) -> str:
    return str(getattr(loss, "name", None) or getattr(loss, "__name__", None) or loss)
