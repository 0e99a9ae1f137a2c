"""Keep a local Ray cluster off the network."""

from collections.abc import MutableMapping, Sequence

_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
_LOCAL_ONLY = "0"


def keep_ray_local(environ: MutableMapping[str, str], arguments: Sequence[str]) -> None:
    """Make Ray's processes listen on 127.0.0.1 only, unless a cluster is given.

    Ray listens on all interfaces, and whoever reaches it can run code. ``ray.init`` ignores a
    request for 127.0.0.1 except on systems where it stays local by default; the environment
    variable that controls this works everywhere and is read when Ray is imported.

    Args:
        environ: The environment; a value that is set is kept.
        arguments: The command line.
    """
    has_cluster = environ.get("RAY_ADDRESS") or any(
        each.startswith("--address") for each in arguments
    )
    if not has_cluster:
        environ.setdefault(_VARIABLE, _LOCAL_ONLY)


def allow_remote_ray(environ: MutableMapping[str, str], address: str | None) -> None:
    """Undo :func:`keep_ray_local` where a sweep file names a cluster; call before importing Ray.

    Args:
        environ: The environment.
        address: The cluster; None for a local one.
    """
    if address and environ.get(_VARIABLE) == _LOCAL_ONLY:
        del environ[_VARIABLE]
