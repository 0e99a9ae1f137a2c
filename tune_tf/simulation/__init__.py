"""Sweeps in virtual time: which searcher and scheduler find a good config in how many epochs.

The searcher and the scheduler are the real ones; only the training is looked up or computed.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
