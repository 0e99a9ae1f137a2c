"""Extras of the package: optional packages, read from its own metadata."""

from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec

from packaging.requirements import Requirement


def requirements_of(extra: str) -> list[Requirement]:
    """Return what an extra installs; nothing for a checkout that is not installed."""
    try:
        all_requirements = map(Requirement, requires("tune-tf") or ())
    except PackageNotFoundError:
        return []
    return [each for each in all_requirements if f'extra == "{extra}"' in str(each.marker)]


def missing_extra(extra: str) -> str | None:
    """Return which packages of an extra are not installed, with the remedy; None if all are."""
    names = [each.name for each in requirements_of(extra)]
    missing = [name for name in names if find_spec(name.replace("-", "_")) is None]
    if not missing:
        return None
    verb = "is" if len(missing) == 1 else "are"
    return f"{' and '.join(missing)}, which {verb} not installed: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that installs an extra, quoted as every shell needs it."""
    return f"pip install 'tune-tf[{extra}]'"
