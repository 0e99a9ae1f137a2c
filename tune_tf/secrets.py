"""Masking of secrets, and references to environment variables in a sweep file.

A secret is recognized by its shape (a password in a URI or after its name, the keys of well-known
services) or by its value, if an environment variable or a setting of a sweep with a telling name
holds it. Another password that is a plain word in a sentence is not recognized.
"""

import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from tune_tf.errors import InvalidSettingsError

HIDDEN: Final = "***"
"""Replacement of a secret."""

_SHORTEST_VALUE = 6
_SHORTEST_SETTING = 8  # else words such as those of `tokens: [unknown]` were masked everywhere
_NAMES = (
    r"(?:api|access|private|secret|auth|encryption)[_-]?key|key[_-]?id"
    r"|token|password|passwd|passphrase|secret|credentials?"
)
_SECRET_NAME = re.compile(rf"(?:{_NAMES}|(?<![a-z])(?:pwd|pass|auth))s?$", re.IGNORECASE)
_SHAPES = re.compile(
    "|".join(
        [
            r"(\b[A-Za-z][\w+.-]*://[^\s/:@'\"]*:)(?!\$\{)[^\s/'\"<>]+(?=@)",
            rf"(?i:((?:{_NAMES})(?:[\"']?\s*[:=]\s*[\"']|=))(?!\$\{{)[^\s&;,'\"()]{{6,}}(?![\w(]))",
            r"(?i:(\bauthorization\W+(?:basic|bearer|token)\s+)[\w.~+/=-]{8,})",
            # Keys of AWS, GitHub, Hugging Face, GitLab, Slack, OpenAI, Google; JSON web tokens
            r"()\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
            r"()\b(?:gh[pousr]_|github_pat_|hf_)\w{20,}",
            r"()\b(?:glpat-|(?<!-)sk-)[\w-]{16,}",
            r"()\b(?:xox[a-z]-[\w-]{10,}|AIza[\w-]{35}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+)",
        ]
    )
)
"""What has the shape of a secret, after a group that stays."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_USER_INFO = re.compile(r"[\w+.-]+://[^/?#:@]*:(?!\d+[/?#])([^@]*)(?=@)")
_IN_QUERY = re.compile(r"[?&]password=([^&#]*)", re.IGNORECASE)


def mask_secrets(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Replace each secret in a text by ``***``.

    Environment variables with a name like ``..._TOKEN`` and at least 6 characters are secrets.
    """
    return _masked(text, secret_values(environ))


def mask_all(texts: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Mask the secrets in the values of a mapping."""
    values = secret_values(environ)
    return {name: _masked(text, values) for name, text in texts.items()}


def secret_values(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return the registered secrets and those of environment variables with telling names."""
    values = (environ[name] for name in environ if is_secret_name(name))
    return _registered.union(value for value in values if len(value) >= _SHORTEST_VALUE)


def register_secrets(settings: Mapping[str, Any]) -> None:
    """Mask the settings with telling names in all that this process writes from now on."""
    _register(value for value in _secrets_in(settings) if len(value) >= _SHORTEST_SETTING)


def _register(values: Iterable[str]) -> None:
    global _registered  # noqa: PLW0603  a frozen set, which another thread may be reading
    _registered = _registered.union(values)


_registered: frozenset[str] = frozenset()


def _secrets_in(settings: Any, name: str = "") -> Iterator[str]:
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _secrets_in(value, str(key))
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _secrets_in(value, name)
    elif _is_secret(name, settings):
        yield settings


def refuse_password(uri: str) -> str:
    """Raise ValueError for a URI that holds a password itself, and no reference to one."""
    passwords = [*_USER_INFO.findall(uri), *_IN_QUERY.findall(uri)]
    if any(password and not _REFERENCE.search(password) for password in passwords):
        raise ValueError(
            "must not hold a password: write a reference such as ${DB_PASSWORD} in its place, and "
            "set that variable where the sweep is started"
        )
    return uri


@functools.lru_cache(maxsize=1024)  # asked for each text that is written
def is_secret_name(name: str) -> bool:
    """Return whether the name of an environment variable denotes a secret."""
    return name != "PWD" and (name.endswith("KEY") or _SECRET_NAME.search(name) is not None)


def mask_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Replace settings whose names denote secrets by ``***``; keep ``${NAME}`` references."""
    return {name: _hidden(name, value) for name, value in settings.items()}


def _hidden(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return mask_settings(value)
    if isinstance(value, list | tuple):
        return [_hidden(name, each) for each in value]
    return HIDDEN if _is_secret(name, value) else value


def _is_secret(name: str, value: Any) -> bool:
    """Return whether a setting holds a secret itself, and no reference to one."""
    return (
        isinstance(value, str)
        and _SECRET_NAME.search(name) is not None
        and not _REFERENCE.search(value)
    )


def _masked(text: str, values: frozenset[str]) -> str:
    if values:
        text = _any_of(values).sub(HIDDEN, text)
    return _SHAPES.sub(lambda match: f"{match[match.lastindex or 0]}{HIDDEN}", text)


@functools.lru_cache(maxsize=8)
def _any_of(values: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern for the values, also as encoded in a URI or in JSON."""
    forms = {
        form for value in values for form in (value, quote(value, safe=""), json.dumps(value)[1:-1])
    }
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))


def expand_references(uri: str, where: str, environ: Mapping[str, str] = os.environ) -> str:
    """Expand the ``${NAME}`` references to environment variables in a URI.

    Values in ``user:password@`` or the query are percent-encoded, so the variable holds the plain
    password; elsewhere they are inserted unchanged. They are masked from then on.

    Raises:
        InvalidSettingsError: Variables are not set; names them all.
    """
    names = dict.fromkeys(_REFERENCE.findall(uri))
    if missing := [name for name in names if name not in environ]:
        raise InvalidSettingsError(
            [
                f"{where} refers to the environment variable {name}, which is not set: set it "
                f"(export {name}=...) and start again"
                for name in missing
            ]
        )
    _register(environ[name] for name in names if len(environ[name]) >= _SHORTEST_VALUE)
    info = _USER_INFO.match(uri)
    end_of_info = info.end() if info else 0
    start_of_query = uri.find("?") if "?" in uri else len(uri)

    def value(match: re.Match[str]) -> str:
        encode = match.start() < end_of_info or match.start() > start_of_query
        return quote(environ[match[1]], safe="") if encode else environ[match[1]]

    return _REFERENCE.sub(value, uri)
