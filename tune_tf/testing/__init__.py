"""Contract tests of Trainables, schedulers and workloads.

They need pytest; those of Trainables and schedulers run real trials on the connected Ray cluster.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
