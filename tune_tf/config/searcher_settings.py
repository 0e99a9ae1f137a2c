"""Searcher section of a sweep file."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from tune_tf.config.error_text import short_repr
from tune_tf.config.settings import Settings
from tune_tf.space.frozen import FrozenMapping


def _points(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of configs to try first, not {short_repr(value)}")
    wrong = [each for each in value if not isinstance(each, dict | FrozenMapping)]
    if wrong:
        raise ValueError(
            f"must hold configs like {{learning_rate: 0.1}}, not {short_repr(wrong[0])}"
        )
    return tuple(FrozenMapping(each) for each in value)


_Points = Annotated[
    tuple[Any, ...],
    BeforeValidator(_points),
    PlainSerializer(lambda points: [dict(point) for point in points]),
]


class SearcherSettings(Settings):
    """The searcher, which proposes configs.

    Args:
        name: The searcher.
        sampler: Optuna's sampler. ``tpe`` learns from all results, running trials included;
            ``tpe_rungs`` compares trials only where a scheduler does; ``random`` does not learn.
        seed: Seed of the sampler; default: the sweep's.
        storage: URL of an Optuna database; None for a journal file in the sweep's folder.
        study_name: Name of the study in it; None for the sweep's id. An existing study is
            continued.
        points_to_evaluate: Configs to evaluate first.
        warm_start_from: Earlier results to learn from: a sweep's folder, a study's journal file or
            database URL, or ``mlflow:<experiment name>``.
        allow_changed_space: Whether a study may continue with another search space.
    """

    name: Literal["optuna"] = "optuna"
    sampler: Literal[
        "tpe",
        "tpe_rungs",
        "random",
        "cmaes",
        "gp",
        "nsga2",
        "nsga3",
        "qmc",
        "grid",
        "bruteforce",
    ] = "tpe"
    seed: Annotated[int, Field(ge=0)] | None = None
    storage: str | None = None
    study_name: str | None = None
    points_to_evaluate: _Points = ()
    warm_start_from: str | None = None
    allow_changed_space: bool = False
