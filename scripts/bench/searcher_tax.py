"""Overhead of the searcher per suggestion over plain Optuna, and of TPE over random per sweep.

First, a searcher and a plain Optuna study with the same sampler and seed get the same calls in
turns and must propose the same configs. Then 50 equal trials run on two slots under ``tune.run``,
with TPE and with random in turns. The second ratio bounds what computing suggestions ahead of time
could save.
"""

import argparse
import logging
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import optuna
from measuring.interleaved import Contestant, ratio_of, take_turns
from measuring.summary import Target, print_summary, print_table

from tune_tf.objective import Objective
from tune_tf.searchers import OptunaSearcher
from tune_tf.space import Choice, Float, Int, SearchSpace, flatten

_LOSS = Objective("loss", "min")
_NUM_SLOTS = 2
_NUM_STEPS = 3
_TARGETS = {
    "added_ms_a_suggestion_random": Target(1.0, "at most"),
    "added_ms_a_suggestion_tpe": Target(1.0, "at most"),
    "tpe_over_random_wall": Target(1.10, "at most"),
}
_SPACE = SearchSpace(
    {
        "learning_rate": Float(1e-5, 1e-1, log=True),
        "weight_decay": Float(1e-6, 1e-2, log=True),
        "dropout": Float(0.0, 0.5),
        "momentum": Float(0.0, 0.99),
        "units": Int(16, 256, log=True),
        "num_layers": Int(1, 6),
        "activation": Choice(["relu", "gelu", "tanh"]),
        "optimizer": Choice(["adamw", "sgd"]),
    }
)
_SAMPLERS: Mapping[str, Callable[[], optuna.samplers.BaseSampler]] = {
    "random": lambda: optuna.samplers.RandomSampler(seed=1),
    # What the searcher makes of "tpe" for a space with choices.
    "tpe": lambda: optuna.samplers.TPESampler(seed=1, multivariate=False),
}


def _loss_of(config: Mapping[str, Any]) -> float:
    return (
        (math.log10(config["learning_rate"]) + 3) ** 2
        + (config["dropout"] - 0.2) ** 2
        + (config["units"] / 256 - 0.5) ** 2
        + (config["activation"] == "tanh")
    )


@dataclass
class _Plain:
    """Plain Optuna."""

    sampler: optuna.samplers.BaseSampler
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=self.sampler)
        self._suggest = _SPACE.to_optuna()

    def do(self, number: int) -> dict[str, Any]:
        """Ask and tell once; return the config."""
        started = time.perf_counter()
        trial = self._study.ask()
        config = self._suggest(trial)
        self.seconds.append(time.perf_counter() - started)
        trial.report(_loss_of(config), 1)
        self._study.tell(trial, _loss_of(config))
        return config


@dataclass
class _Ours:
    """Searcher, driven by the calls that Tune makes."""

    sampler: str
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Ours by that name draws otherwise than Optuna's.
        chosen = ("tpe", 1) if self.sampler == "tpe" else (_SAMPLERS[self.sampler](), None)
        self._searcher = OptunaSearcher(_SPACE, _LOSS, chosen[0], seed=chosen[1])

    def do(self, number: int) -> dict[str, Any]:
        """Suggest and complete once; return the config."""
        trial_id = f"trial{number}"
        started = time.perf_counter()
        config = flatten(self._searcher.suggest(trial_id))
        self.seconds.append(time.perf_counter() - started)
        result = {"loss": _loss_of(config), "training_iteration": 1, "stop_reason": "completed"}
        self._searcher.on_trial_complete(trial_id, result)
        return config


def _measure_suggestions(num_suggestions: int) -> dict[str, float]:
    values: dict[str, float] = {}
    rows = []
    for name, make in _SAMPLERS.items():
        plain, ours = _Plain(make()), _Ours(name)
        for number in range(num_suggestions):
            turns = (plain, ours) if number % 2 else (ours, plain)
            first, second = (each.do(number) for each in turns)
            assert first == second, f"{name}: other configs are proposed: {first} {second}"
        added = [a - b for a, b in zip(ours.seconds, plain.seconds, strict=True)]
        ratio = ratio_of([a / b for a, b in zip(ours.seconds, plain.seconds, strict=True)])
        plain_ms, ours_ms = (1000 * statistics.median(each.seconds) for each in (plain, ours))
        last = [1000 * statistics.median(each.seconds[-50:]) for each in (plain, ours)]
        rows.append(
            (
                name,
                f"{plain_ms:.2f}",
                f"{ours_ms:.2f}",
                f"{last[0]:.2f} / {last[1]:.2f}",
                f"{1000 * statistics.median(added):.3f}",
                str(ratio),
            )
        )
        values[f"added_ms_a_suggestion_{name}"] = 1000 * statistics.median(added)
        values[f"added_ms_a_suggestion_{name}_mean"] = 1000 * statistics.fmean(added)
        values[f"ours_over_plain_suggestion_{name}"] = ratio.median
        values[f"ours_ms_a_suggestion_{name}"] = ours_ms
    header = ("sampler", "plain, ms", "ours, ms", "last 50, ms", "added, ms", "ours / plain")
    print_table(header, rows)
    return values


class _Sweep(Contestant):
    """Sweep of equal trials.

    Args:
        sampler: Name of the sampler.
        num_trials: Trials.
        step_s: How long one step of a trial takes, in seconds.
    """

    def __init__(self, sampler: str, num_trials: int, step_s: float) -> None:
        self._sampler, self._num_trials, self._step_s = sampler, num_trials, step_s

    def prepare(self) -> None:
        """Create the searcher."""
        self._searcher = OptunaSearcher(_SPACE, _LOSS, self._sampler, seed=1)

    def run(self) -> None:
        """Run the sweep."""
        from ray import tune

        with tempfile.TemporaryDirectory() as folder:
            analysis = tune.run(
                tune.with_parameters(_trainable(), step_s=self._step_s),
                search_alg=self._searcher,
                num_samples=self._num_trials,
                max_concurrent_trials=_NUM_SLOTS,
                stop={"training_iteration": _NUM_STEPS},
                storage_path=folder,
                reuse_actors=True,
                verbose=0,
            )
        states = [trial.state.name for trial in self._searcher.study.trials]
        assert states == ["COMPLETE"] * self._num_trials, f"not all are complete: {states}"
        assert all(t.last_result["training_iteration"] == _NUM_STEPS for t in analysis.trials)


def _trainable() -> type:
    from ray import tune

    class Steps(tune.Trainable):
        def setup(self, config: dict[str, Any], step_s: float = 0.0) -> None:
            self._config, self._step_s = config, step_s

        def step(self) -> dict[str, float]:
            time.sleep(self._step_s)
            return {"loss": _loss_of(self._config)}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self._config = new_config
            return True

        def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
            return {}

        def load_checkpoint(self, checkpoint: dict[str, Any] | None) -> None:
            pass

    return Steps


def _measure_sweeps(num_trials: int, num_rounds: int, step_s: float) -> dict[str, float]:
    import ray

    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    ray.init(
        num_cpus=_NUM_SLOTS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    timings = take_turns(
        {name: _Sweep(name, num_trials, step_s) for name in _SAMPLERS}, num_rounds=num_rounds
    )
    ray.shutdown()
    ratio = timings.ratio("tpe", "random")
    print()
    print_table(
        ("sampler", f"{num_trials} trials, s"),
        [(name, f"{timings.median_s(name):.2f}") for name in _SAMPLERS],
    )
    training_s = num_trials * _NUM_STEPS * step_s / _NUM_SLOTS
    print(f"tpe / random: {ratio}; training alone: {training_s:.1f} s")
    return {
        "tpe_over_random_wall": ratio.median,
        "wall_random_s": timings.median_s("random"),
        "wall_tpe_s": timings.median_s("tpe"),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smoke run: few suggestions, trials")
    parser.add_argument("--num-suggestions", type=int, default=1000, help="of each sampler")
    parser.add_argument("--num-trials", type=int, default=50, help="of each sweep")
    parser.add_argument("--num-rounds", type=int, default=5, help="sweeps of each sampler")
    parser.add_argument("--step-s", type=float, default=0.1, help="seconds that a step takes")
    parser.add_argument("--skip-sweeps", action="store_true", help="start no Ray cluster")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.num_suggestions, arguments.num_trials, arguments.num_rounds = 100, 10, 2
    return arguments


def main() -> None:
    """Run both parts and print the summary."""
    arguments = _arguments()
    values = _measure_suggestions(arguments.num_suggestions)
    if not arguments.skip_sweeps:
        values |= _measure_sweeps(arguments.num_trials, arguments.num_rounds, arguments.step_s)
    print_summary("searcher_tax", values, _TARGETS)


if __name__ == "__main__":
    main()
