"""The report of a finished sweep: one page for people, its pictures, and a table of all trials."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
