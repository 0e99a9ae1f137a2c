"""Report of a sweep: HTML page, plots, and a CSV table of all trials."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
