"""Remove secrets from texts that leave the machine: settings, logs, environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

REMOVED = "(removed)"

_SECRET_NAME = r"[\w.-]*(?:password|passwd|passphrase|secret|token|credential|api[_-]?key)[\w.-]*"
_NAMED_SECRET = re.compile(
    # A name as in YAML, JSON, a command line or an assignment, and its value up to the line's end,
    # a comma or a blank, or within quotes.
    rf"(?P<head>(?i:{_SECRET_NAME})[\"']?\s*[:=]\s*)(?P<value>\"[^\"\n]*\"|'[^'\n]*'|[^\s,;}}]+)"
)
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?(-----END \1-----|\Z)", re.S)
_USER_IN_URL = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@")


def without_secrets(text: str) -> str:
    """Return ``text`` with the values of names like ``password``, and private keys, removed."""
    text = _PEM_BLOCK.sub(rf"-----\1 {REMOVED}-----", text)
    text = _NAMED_SECRET.sub(rf"\g<head>{REMOVED}", text)
    return _USER_IN_URL.sub(rf"\g<head>:{REMOVED}@", text)


def environment_without_secrets(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the variables whose names begin with ``prefix``, without secrets."""
    secret = re.compile(_SECRET_NAME, re.I)
    return {
        name: REMOVED if secret.fullmatch(name) else without_secrets(value)
        for name, value in sorted(environment.items())
        if name.startswith(prefix)
    }
