"""Proxy of Tune's controller with replaced attributes."""

from typing import Any


class ControllerProxy:
    """Tune's controller with some of its attributes replaced.

    Some of Ray's schedulers refuse or fail on attributes of the controller that they do not need.

    Args:
        controller: Tune's controller.
        attributes: The replacements.
    """

    def __init__(self, controller: Any, **attributes: Any) -> None:
        self._controller = controller
        self._attributes = attributes

    def __getattr__(self, name: str) -> Any:
        """Return a replacement, or the controller's own attribute."""
        attributes = self.__dict__["_attributes"]
        return attributes[name] if name in attributes else getattr(self._controller, name)
