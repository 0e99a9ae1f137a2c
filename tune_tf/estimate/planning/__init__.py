"""What a sweep will take, before it is run: measured, simulated and added up."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
