"""Contract tests of Trainables, schedulers and workloads, fake GPUs, and a chaos test.

The contract tests need pytest, and run real trials on the connected Ray cluster.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
