"""How a workload scales: the same training on more devices, in other batches and on more rows."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
