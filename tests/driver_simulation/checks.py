"""How the simulation says that something is not true that has to be."""


class WrongError(AssertionError):
    """Something is not true that has to be."""


def check(holds: object, told: str) -> None:
    """Raise where something does not hold."""
    if not holds:
        raise WrongError(told)
