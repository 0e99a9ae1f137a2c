"""Progress of a running sweep in a notebook."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial

from tune_tf.inspection import SweepView
from tune_tf.inspection.sweep_card import sweep_card
from tune_tf.sweep_folder import SweepFolder

_EVERY_S = 1.0


@contextlib.contextmanager
def draw_in_notebook(folder: SweepFolder) -> Iterator[list["NotebookProgress"]]:
    """Draw a running sweep below its notebook cell, and once more at the end.

    Yields:
        A list with the drawing callback; empty outside notebooks.
    """
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    in_notebook = type(shell).__name__ == "ZMQInteractiveShell"
    drawn = [NotebookProgress(folder)] if in_notebook else []
    try:
        yield drawn
    finally:
        for picture in drawn:
            picture.draw()


class NotebookProgress(Callback):
    """Tune callback that draws the progress of a sweep below a notebook cell."""

    def __init__(self, folder: SweepFolder, clock: Callable[[], float] = time.monotonic) -> None:
        from IPython.display import HTML, display  # only notebooks have it

        self._folder = folder
        self._clock = clock
        self._html = HTML
        self._drawn = clock()
        self._seen = SweepView.of(folder)
        show: Any = display  # untyped
        self._picture = show(self._card(), display_id=True)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Redraw if the picture is a second old."""
        now = self._clock()
        if now - self._drawn >= _EVERY_S:
            self._drawn = now
            self.draw()

    def draw(self) -> None:
        """Draw the present state of the sweep's folder."""
        self._seen = SweepView.of(self._folder, before=self._seen)
        self._picture.update(self._card())

    def _card(self) -> Any:
        make: Any = self._html
        return make(sweep_card(self._seen))
