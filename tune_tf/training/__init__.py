"""Training of one trial: devices, programs, epoch loops, checkpoints and seeds.

Keras' plots and scikit-learn wrappers are imported lazily.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

# These import Matplotlib and scikit-learn, which take a quarter of the start time of a trial's
# process and 80 MB of memory.
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
    """Finder that makes the import of these modules lazy."""

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


if _Finder not in sys.meta_path:  # before the import of Keras
    sys.meta_path.insert(0, _Finder)
