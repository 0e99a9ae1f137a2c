"""MLflow tracking of a sweep: one parent run, one child run for each trial.

Neither Ray nor MLflow is loaded by importing this: the first comes with the callback, the second
is loaded by the writer's thread once a sweep starts.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
