"""Sweeps: what a sweep file asks for, planned, run, stopped, resumed and extended."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
