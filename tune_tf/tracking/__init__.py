"""MLflow tracking of a sweep: one parent run, one child run for each trial."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
