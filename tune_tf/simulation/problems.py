"""Benchmark problems by name, frozen so that results are comparable across versions.

Each consists of a loss at full fidelity and a learning curve that ends there, by default after 27
iterations. The curves were designed by how well short runs rank configs, not by the results of
searchers, with one exception: ``misleading`` was made milder, because hardly any searcher found
its first target. Held-out problems have not changed since their first use. Targets are the 0.001
quantiles of ten million random configs.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from tune_tf.errors import InvalidSettingsError, did_you_mean, one_of
from tune_tf.objective import Objective
from tune_tf.simulation import curve_functions
from tune_tf.simulation.problem import EPOCH_S, Problem, Values, default_cost_s
from tune_tf.space import Choice, Float, Int, SearchSpace

_LOSS: Final = Objective("val_loss", "min")


def _branin(values: Values, progress: float) -> Any:
    x1, x2 = values["x1"], values["x2"]
    units = ((x1 + 5) / 15, x2 / 15)
    loss = np.log1p(curve_functions.branin(x1, x2) - curve_functions.BRANIN_MINIMUM)
    loss = loss + 2.0 * curve_functions.crossing_loss(units, progress)
    return loss + curve_functions.curve_noise(units, progress, 0.05)


def _hartmann6(values: Values, progress: float) -> Any:
    x = [values[f"x{number}"] for number in range(1, 7)]
    loss = curve_functions.hartmann6(x) - curve_functions.HARTMANN6_MINIMUM
    loss = loss + 1.2 * curve_functions.crossing_loss(x, progress)
    return loss + curve_functions.curve_noise(x, progress, 0.03)


_FAITHFUL_RATES = {"adam": -3.0, "lion": -4.0, "rmsprop": -3.3, "sgd": -1.5}
_FAITHFUL_OPTIMIZERS = {"adam": 0.0, "lion": 0.04, "rmsprop": 0.08, "sgd": 0.12}
_FAITHFUL_ACTIVATIONS = {"elu": 0.12, "gelu": 0.0, "relu": 0.1, "selu": 0.2, "tanh": 0.25}


def _faithful(values: Values, progress: float) -> Any:
    rate = np.log10(values["learning_rate"])
    decay = np.log10(values["weight_decay"])
    dropout, layers = values["dropout"], values["num_layers"]
    loss = (
        0.1
        + 0.15 * (rate - curve_functions.option_loss(values["optimizer"], _FAITHFUL_RATES)) ** 2
        + curve_functions.option_loss(values["optimizer"], _FAITHFUL_OPTIMIZERS)
        + curve_functions.option_loss(values["activation"], _FAITHFUL_ACTIVATIONS)
        + 0.02 * (decay + 3) ** 2
        + 0.8 * (dropout - 0.25) ** 2
        + 0.03 * (layers - 4) ** 2
    )
    units = ((rate + 5) / 4, (decay + 6) / 5, dropout / 0.7)
    loss = loss + (1 + 0.3 * loss) * curve_functions.excess_loss(progress, 0.2)
    return loss + curve_functions.curve_noise(units, progress, 0.02)


def _layers_cost_s(values: Values) -> Any:
    return EPOCH_S * (0.4 + 0.15 * values["num_layers"])


_MISLEADING_EARLY = {"constant": 0.0, "cosine": 0.3, "step": 0.1}
_MISLEADING_LATE = {"constant": 0.2, "cosine": 0.0, "step": 0.1}
_MISLEADING_OPTIMA = (0.35, 0.6, 0.4, 0.7)
_MISLEADING_MOVES = (0.12, -0.12, 0.12, -0.12)
_MISLEADING_WEIGHTS = (3.0, 1.5, 1.0, 0.5)


def _misleading(values: Values, progress: float) -> Any:
    units = (
        (np.log10(values["learning_rate"]) + 5) / 4,
        (np.log10(values["weight_decay"]) + 6) / 5,
        values["momentum"] / 0.99,
        values["warmup"],
    )
    loss = 0.1 + (1 - progress) * curve_functions.option_loss(values["schedule"], _MISLEADING_EARLY)
    loss = loss + progress * curve_functions.option_loss(values["schedule"], _MISLEADING_LATE)
    terms = zip(units, _MISLEADING_OPTIMA, _MISLEADING_MOVES, _MISLEADING_WEIGHTS, strict=True)
    for unit, optimum, move, weight in terms:
        loss = loss + weight * (unit - optimum - move * (1 - progress) ** 2) ** 2
    loss = loss + curve_functions.excess_loss(progress, 0.25)
    return loss + curve_functions.curve_noise(units, progress, 0.02)


_WORSENING_LOSSES = {"huber": 0.0, "mae": 0.1, "mse": 0.15}


def _worsening(values: Values, progress: float) -> Any:
    units = (
        (np.log10(values["learning_rate"]) + 5) / 4,
        values["clip"],
        values["entropy"],
        values["gamma"],
    )
    weights, optima = (2.0, 1.0, 1.0, 0.5), (0.55, 0.3, 0.65, 0.8)
    final = 0.15 + curve_functions.option_loss(values["loss"], _WORSENING_LOSSES)
    for unit, optimum, weight in zip(units, optima, weights, strict=True):
        final = final + weight * (unit - optimum) ** 2
    return final * (0.2 + 0.8 * progress) + curve_functions.curve_noise(units, progress, 0.01)


def _levy(values: Values, progress: float) -> Any:
    x = [values[f"x{number}"] for number in range(1, 5)]
    units = [(each + 10) / 20 for each in x]
    loss = np.log1p(curve_functions.levy(x)) + 1.5 * curve_functions.crossing_loss(units, progress)
    return loss + curve_functions.curve_noise(units, progress, 0.05)


_ROSENBROCK_KINDS = {"a": 0.0, "b": 0.3, "c": 0.6, "d": 0.9}


def _rosenbrock(values: Values, progress: float) -> Any:
    x = [values[f"x{number}"] for number in range(1, 4)]
    units = [(each + 2) / 4 for each in x]
    loss = np.log1p(curve_functions.rosenbrock(x) / 10)
    loss = loss + curve_functions.option_loss(values["kind"], _ROSENBROCK_KINDS)
    # Good configs start high and improve slowly, so short runs partly rank configs in reverse.
    loss = loss + 6 / (1 + loss) * curve_functions.excess_loss(progress, 0.1 + 0.3 / (1 + loss))
    return loss + curve_functions.curve_noise(units, progress, 0.05)


_NOISY_OPTIMA = (0.3, 0.65, 0.45, 0.8)


def _noisy(values: Values, progress: float) -> Any:
    units = [values[f"x{number}"] for number in range(1, 5)]
    loss = 0.1 + sum(
        (unit - optimum) ** 2 for unit, optimum in zip(units, _NOISY_OPTIMA, strict=True)
    )
    loss = loss + curve_functions.excess_loss(progress, 0.3)
    return loss + curve_functions.curve_noise(units, progress, 0.3)


_PLATEAU_OPTIMA = (0.7, 0.25, 0.55)


def _plateaus(values: Values, progress: float) -> Any:
    units = [values[f"x{number}"] for number in range(1, 4)]
    bowl = sum((unit - each) ** 2 for unit, each in zip(units, _PLATEAU_OPTIMA, strict=True))
    loss = 0.1 + 0.05 * np.floor(20 * bowl) + 0.2 * bowl
    # A run learns nothing until its onset, which is late for half of the good ones.
    onset = 0.3 + 0.25 * np.cos(20 * (units[0] + units[2]))
    loss = loss + 2 / (1 + np.exp((progress - onset) / 0.05))
    return loss + curve_functions.curve_noise(units, progress, 0.02)


def _irrelevant(values: Values, progress: float) -> Any:
    units = [values[f"x{number}"] for number in range(1, 13)]
    first, second, third = units[1], units[4], units[9]
    loss = 0.1 + 2 * (first - 0.6) ** 2 + (second - 0.2) ** 2 + 0.5 * (third - first) ** 2
    loss = loss + 0.2 * curve_functions.crossing_loss([first, second], progress)
    return loss + curve_functions.curve_noise(units, progress, 0.05)


_CONDITIONAL_LOSSES = {"linear": 0.25, "network": 0.0, "trees": 0.04}


def _conditional(values: Values, progress: float) -> Any:
    kind = np.asarray(values["kind"])

    def unit(path: str) -> Any:
        return np.asarray(values.get(path, 0.5), dtype=float)

    depth = (unit("trees/depth") - 2) / 10
    rate = (np.log10(unit("network/learning_rate")) + 5) / 4
    of_kind = {
        "linear": 0.3 * (unit("linear/penalty") - 0.3) ** 2,
        "network": 2 * (rate - 0.5) ** 2 + (unit("network/dropout") - 0.3) ** 2,
        "trees": (depth - 0.6) ** 2 + 0.5 * (unit("trees/share") - 0.7) ** 2,
    }
    loss = np.select([kind == each for each in of_kind], list(of_kind.values()))
    loss = 0.1 + loss + curve_functions.option_loss(values["kind"], _CONDITIONAL_LOSSES)
    loss = loss + 0.2 * (unit("scale") - 0.5) ** 2
    # Networks start slowly and end best.
    tau = np.where(kind == "network", 0.2, 0.1)
    loss = loss + 0.8 * curve_functions.excess_loss(progress, tau)
    return loss + curve_functions.curve_noise([unit("scale"), loss], progress, 0.03)


_DISCRETE_ACTIVATIONS = {"elu": 0.05, "gelu": 0.0, "relu": 0.03, "selu": 0.12, "tanh": 0.15}


def _discrete(values: Values, progress: float) -> Any:
    width, layers = np.log2(values["width"]), values["num_layers"]
    batch, heads, kernel = (values[name] for name in ("batch_size", "num_heads", "kernel_size"))
    units = ((width - 4) / 6, (layers - 1) / 11, np.log2(batch) / 8, heads / 16, kernel / 15)
    weights, optima = (1.0, 1.5, 0.6, 0.4, 0.3), (0.7, 0.4, 0.6, 0.5, 0.3)
    loss = 0.1 + curve_functions.option_loss(values["activation"], _DISCRETE_ACTIVATIONS)
    for unit, optimum, weight in zip(units, optima, weights, strict=True):
        loss = loss + weight * (unit - optimum) ** 2
    # Large models start worse.
    excess = (0.4 + 0.8 * units[0]) * curve_functions.excess_loss(progress, 0.1 + 0.2 * units[1])
    return loss + excess + curve_functions.curve_noise(units, progress, 0.03)


def _heteroscedastic(values: Values, progress: float) -> Any:
    rate = (np.log10(values["learning_rate"]) + 5) / 4
    units = (rate, values["momentum"] / 0.99, values["dropout"] / 0.7)
    loss = 0.1 + 1.5 * (rate - 0.75) ** 2 + 0.5 * (units[1] - 0.8) ** 2
    loss = loss + 0.5 * (units[2] - 0.3) ** 2 + curve_functions.excess_loss(progress, 0.2)
    # The best learning rates make the noisiest curves.
    return loss + (0.1 + 2 * rate) * curve_functions.curve_noise(units, progress, 0.2)


def _floats(count: int, low: float, high: float) -> dict[str, Any]:
    return {f"x{number}": Float(low, high) for number in range(1, count + 1)}


class _Definition(NamedTuple):
    """Definition of a problem; ``loss`` is a function of a config and the completed fraction."""

    loss: Callable[[Values, float], Any]
    about: str
    parameters: dict[str, Any]
    target: float
    cost_s: Callable[[Values], Any] = default_cost_s
    held_out: bool = False


_DEFINITIONS = {
    "branin": _Definition(
        _branin,
        "log(1 + Branin) with curves that cross; two floats.",
        {"x1": Float(-5.0, 10.0), "x2": Float(0.0, 15.0)},
        target=0.0511396,
    ),
    "hartmann6": _Definition(
        _hartmann6,
        "Hartmann in six dimensions with curves that cross; six floats.",
        _floats(6, 0.0, 1.0),
        target=0.664683,
    ),
    "mixed_faithful": _Definition(
        _faithful,
        "Optimizer, activation, depth, rates and dropout; short runs rank configs as long ones do.",
        {
            "optimizer": Choice(sorted(_FAITHFUL_OPTIMIZERS)),
            "activation": Choice(sorted(_FAITHFUL_ACTIVATIONS)),
            "num_layers": Int(1, 6),
            "learning_rate": Float(1e-5, 1e-1, log=True),
            "weight_decay": Float(1e-6, 1e-1, log=True),
            "dropout": Float(0.0, 0.7),
        },
        target=0.151929,
        cost_s=_layers_cost_s,
    ),
    "misleading": _Definition(
        _misleading,
        "The best values move as training goes on, so that short runs prefer others; four floats "
        "and a choice.",
        {
            "schedule": Choice(sorted(_MISLEADING_LATE)),
            "learning_rate": Float(1e-5, 1e-1, log=True),
            "weight_decay": Float(1e-6, 1e-1, log=True),
            "momentum": Float(0.0, 0.99),
            "warmup": Float(0.0, 1.0),
        },
        target=0.13039,
    ),
    "worsening": _Definition(
        _worsening,
        "The metric worsens with each iteration, so that last values of short runs look best; four "
        "floats and a choice.",
        {
            "loss": Choice(sorted(_WORSENING_LOSSES)),
            "learning_rate": Float(1e-5, 1e-1, log=True),
            "clip": Float(0.0, 1.0),
            "entropy": Float(0.0, 1.0),
            "gamma": Float(0.0, 1.0),
        },
        target=0.174886,
    ),
    "noisy": _Definition(
        _noisy,
        "A bowl under noise that is as large as the differences, and fades; four floats.",
        _floats(4, 0.0, 1.0),
        target=0.114209,
    ),
    "irrelevant": _Definition(
        _irrelevant,
        "Three parameters of twelve matter, with curves that cross; twelve floats.",
        _floats(12, 0.0, 1.0),
        target=0.103849,
    ),
    "discrete": _Definition(
        _discrete,
        "An architecture in whole numbers and choices, whose large models start worse.",
        {
            "activation": Choice(sorted(_DISCRETE_ACTIVATIONS)),
            "batch_size": Choice([8, 16, 32, 64, 128, 256]),
            "kernel_size": Choice([1, 3, 5, 7, 9, 15]),
            "num_heads": Choice([1, 2, 4, 8, 16]),
            "num_layers": Int(1, 12),
            "width": Int(16, 1024, log=True),
        },
        target=0.138524,
    ),
    "heteroscedastic": _Definition(
        _heteroscedastic,
        "The best learning rates make the noisiest curves; three floats.",
        {
            "learning_rate": Float(1e-5, 1e-1, log=True),
            "momentum": Float(0.0, 0.99),
            "dropout": Float(0.0, 0.7),
        },
        target=0.102777,
    ),
    "levy": _Definition(
        _levy,
        "log(1 + Levy) with curves that cross; four floats. Held out.",
        _floats(4, -10.0, 10.0),
        target=0.863274,
        held_out=True,
    ),
    "rosenbrock": _Definition(
        _rosenbrock,
        "Rosenbrock's valley in three dimensions, slow where it is good; a choice besides. Held "
        "out.",
        {**_floats(3, -2.0, 2.0), "kind": Choice(sorted(_ROSENBROCK_KINDS))},
        target=0.410722,
        held_out=True,
    ),
    "plateaus": _Definition(
        _plateaus,
        "Steps, and runs that learn nothing until an onset, late for some of the best; three "
        "floats. Held out.",
        _floats(3, 0.0, 1.0),
        target=0.100848,
        held_out=True,
    ),
    "conditional": _Definition(
        _conditional,
        "Three kinds of models with parameters of their own, of which the best starts slowest; "
        "held out.",
        {
            "kind": Choice(sorted(_CONDITIONAL_LOSSES)),
            "scale": Float(0.0, 1.0),
            "linear/penalty": Float(0.0, 1.0, when={"kind": "linear"}),
            "network/learning_rate": Float(1e-5, 1e-1, log=True, when={"kind": "network"}),
            "network/dropout": Float(0.0, 0.7, when={"kind": "network"}),
            "trees/depth": Int(2, 12, when={"kind": "trees"}),
            "trees/share": Float(0.2, 1.0, when={"kind": "trees"}),
        },
        target=0.104621,
        held_out=True,
    ),
}

PROBLEMS: Final = tuple(_DEFINITIONS)
"""Names of all problems, the held-out ones last."""


def make_problem(name: str, *, max_t: int = 27) -> Problem:
    """Return a problem, named as in :data:`PROBLEMS`, with full runs of ``max_t`` iterations.

    Raises:
        InvalidSettingsError: The name is unknown, or ``max_t`` is not a positive whole number.
    """
    if name not in _DEFINITIONS:
        hint = did_you_mean(name, PROBLEMS)
        raise InvalidSettingsError(
            [f"unknown problem {name!r}: it must be {one_of(PROBLEMS)}{hint}"]
        )
    loss, about, parameters, target, cost_s, held_out = _DEFINITIONS[name]
    return Problem(
        name,
        about,
        SearchSpace(parameters),
        _LOSS,
        max_t,
        lambda values, iteration: loss(values, iteration / max_t),
        target,
        cost_s,
        held_out,
    )
