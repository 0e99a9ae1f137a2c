"""MLflow tracking of a sweep: one parent run, one child run for each trial.

Importing this package loads neither Ray nor MLflow: the callback imports Ray, and the writer's
thread imports MLflow once a sweep starts.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
