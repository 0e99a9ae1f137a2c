"""Keeping what a Ray cluster of this machine's own listens on to this machine."""

from collections.abc import MutableMapping, Sequence

_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_KEPT = "0"


def keep_ray_local(environ: MutableMapping[str, str], arguments: Sequence[str]) -> None:
    """Have Ray's processes listen on 127.0.0.1 only, unless a cluster is to be connected.

    Ray listens on all interfaces, and whoever reaches it runs code. ``ray.init`` puts 127.0.0.1
    aside where it is asked for it, except on systems on which it keeps to this machine by default;
    the variable that says whether it does works on all, and is read when Ray is imported.

    Args:
        environ: The environment; what it says already stays.
        arguments: The command line.
    """
    told = environ.get("RAY_ADDRESS") or any(each.startswith("--address") for each in arguments)
    if not told:
        environ.setdefault(_VARIABLE, _KEPT)


def let_ray_out(environ: MutableMapping[str, str], address: str | None) -> None:
    """Take that back where a sweep file names a cluster; before Ray is imported.

    Args:
        environ: The environment.
        address: The cluster; None for one of this machine's own.
    """
    if address and environ.get(_VARIABLE) == _KEPT:
        del environ[_VARIABLE]
