"""Loads Keras' plots and its wrappers for scikit-learn when they are used, not with Keras.

With them Keras loads Matplotlib and scikit-learn, a quarter of the time that a trial's process
needs to start and 80 MB of its memory.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

SELDOM_USED = frozenset(
    {
        "keras.src.visualization",
        "keras.visualization",
        "keras._tf_keras.keras.visualization",
        "keras.wrappers",
        "keras._tf_keras.keras.wrappers",
    }
)


class _Finder:
    """Finds these modules such that each is loaded when a name in it is asked for."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in SELDOM_USED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def load_lazily() -> None:
    """Have them loaded so in this process, if Keras is not loaded yet."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
