"""How a running sweep looks in a notebook."""

import sys
import time
from collections.abc import Callable
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.folder import SweepFolder
from tune_tf.view import SweepView
from tune_tf.view.sweep_card import sweep_card

_EVERY_S = 1.0


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookProgress(Callback):
    """Draws a sweep below the cell that runs it, and again as it goes on; a Tune callback.

    Args:
        folder: The sweep's folder.
        clock: Seconds that only grow.
    """

    def __init__(self, folder: SweepFolder, clock: Callable[[], float] = time.monotonic) -> None:
        from IPython.display import HTML, display  # there is one in a notebook

        self._folder = folder
        self._clock = clock
        self._html = HTML
        self._drawn = clock()
        self._seen = SweepView.of(folder)
        show: Any = display  # it has no types
        self._picture = show(self._card(), display_id=True)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Draw again, if it is time to."""
        now = self._clock()
        if now - self._drawn >= _EVERY_S:
            self._drawn = now
            self.draw()

    def draw(self) -> None:
        """Draw the sweep as its folder shows it."""
        self._seen = SweepView.of(self._folder, before=self._seen)
        self._picture.update(self._card())

    def _card(self) -> Any:
        make: Any = self._html
        return make(sweep_card(self._seen))
