"""Patches of Ray Tune 2.60 that shorten the start of a run."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ray.air._internal import usage
from ray.tune import Callback
from ray.tune.execution import class_cache
from ray.tune.logger import LoggerCallback


@contextlib.contextmanager
def fast_start_up() -> Iterator[None]:
    """Start the runs of this process a second or more earlier within the context.

    Ray imports MLflow before it asks for the first actor, to count callbacks by the names of its
    own classes. And Tune sets a variable for PyTorch Lightning, with which an actor cannot take one
    of the worker processes that Ray has started already. A private name that is gone is left alone.
    """
    replacements = [
        (usage, "_count_callbacks", _count_with),
        (class_cache, "DEFAULT_ENV_VARS", lambda _: {}),
    ]
    with contextlib.ExitStack() as stack:
        for module, name, replacement in replacements:
            if hasattr(module, name):
                original = getattr(module, name)
                stack.callback(setattr, module, name, original)
                setattr(module, name, replacement(original))
        yield


def _count_with(original: Any) -> Any:
    """Return a count of callbacks for usage statistics; ``original`` counts any of Ray's own."""

    def count(callbacks: Sequence[Callback] | None) -> dict[str, int]:
        if any(type(each).__module__.startswith("ray.") for each in callbacks or ()):
            counts: dict[str, int] = original(callbacks)
            return counts
        return Counter(
            "CustomLoggerCallback" if isinstance(each, LoggerCallback) else "CustomCallback"
            for each in callbacks or ()
        )

    return count
