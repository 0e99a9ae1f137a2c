"""Tune's controller as a scheduler is to see it."""

from typing import Any


class ControllerProxy:
    """Tune's controller, with some of its attributes replaced.

    Ray's schedulers look at the controller that calls them, and some refuse or fail on what they
    see there although they could do without.

    Args:
        controller: Tune's controller.
        attributes: What is to be seen in place of the controller's own.
    """

    def __init__(self, controller: Any, **attributes: Any) -> None:
        self._controller = controller
        self._attributes = attributes

    def __getattr__(self, name: str) -> Any:
        """Return a replaced attribute, or the controller's own."""
        attributes = self.__dict__["_attributes"]
        return attributes[name] if name in attributes else getattr(self._controller, name)
