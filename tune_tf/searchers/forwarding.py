"""Methods that pass every call on to another object."""

from collections.abc import Callable
from typing import Any


def forward_to(attribute: str, name: str) -> Callable[..., Any]:
    """Return a method that calls the method ``name`` of an attribute of its object."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(getattr(self, attribute), name)(*args, **kwargs)

    return forward
