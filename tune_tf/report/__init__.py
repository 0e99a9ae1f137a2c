"""Report of a sweep: one HTML page with plots and a table of its trials."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
