"""Simulated sweeps in virtual time: real searchers and schedulers on known learning curves.

They measure how many epochs a searcher and a scheduler need to find a good config.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
