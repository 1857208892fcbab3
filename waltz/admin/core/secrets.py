"""Remove secrets from texts that leave the machine: settings, logs, environment. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

REMOVED = "(removed)"

# The lookbehind lets a match begin only where a word begins. Otherwise a word of 100,000 characters
# in a log would take minutes: each of its characters would be tried as the beginning.
_SECRET_NAME = (
    r"(?<![\w.-])"
    r"[\w.-]*(?:password|passwd|passphrase|pwd|secret|token|credential|authorization"
    r"|(?:api|private|access)[_-]?key)[\w.-]*"
)
_QUOTED = r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|''|[^'\\\n])*'"
"""A text in quotes. A quote within it is escaped by a backslash, in YAML also by a second quote."""
_NEXT_LINE = r"\n(?:[ \t]*\n)*+(?P=indent)[ \t]"
"""The beginning of a line that is indented more than the name of the value, after empty lines.

Without the possessive ``*+``, a line of blanks would have two meanings, and a text with many of
them and without a closing quote would take minutes.
"""
_YAML_SECRET = re.compile(
    # A line ``name: value``. The value is in quotes, follows | or >, is a list or map in the lines
    # below, or has none of these. It
    # continues in the lines that are indented more than its name. There is one exception, the group
    # ``item``: after ``- name: value`` without quotes, a line with a colon is another name of the
    # same item. YAML has no colon followed by a blank in a value without quotes.
    rf"^(?P<head>(?P<indent>[ \t]*)(?P<item>- )?(?i:{_SECRET_NAME})[ \t]*:(?:[ \t]+|(?=\n)))"
    rf"(?:(?:{_NEXT_LINE}[^\n]*)+"
    rf"|\"(?:\\.|[^\"\\\n]|{_NEXT_LINE})*\"|'(?:\\.|''|[^'\\\n]|{_NEXT_LINE})*'"
    rf"|[|>][^\n]*(?:{_NEXT_LINE}[^\n]*)*"
    rf"|[^\s{{\[][^\n]*(?(item)(?:{_NEXT_LINE}(?![^\n]*:(?:[ \t\n]|\Z))[^\n]*)*"
    rf"|(?:{_NEXT_LINE}[^\n]*)*))",
    re.M,
)
_NAMED_SECRET = re.compile(
    # ``name=value`` or ``name: value`` anywhere, as in JSON, a log line or an assignment. A value
    # is in quotes, a list or map in brackets, or a list of lines that begin with a hyphen. Any
    # other ends at a blank, a comma, a semicolon or a closing brace, after the name of a scheme.
    # The length in brackets is bounded, so that a text with many of them and no end takes seconds.
    rf"(?P<head>(?i:{_SECRET_NAME})[\"']?\s*(?:=>|[:=])\s*)(?:{_QUOTED}"
    r"|\[(?:[^\]]{0,1000}\]|[^\n]*)|\{(?:[^}]{0,1000}\}|[^\n]*)"
    r"|-[ \t][^\n]*(?:\n[ \t]*-[ \t][^\n]*)*"
    r"|(?:(?i:bearer|basic|digest)[ \t]+)?[^\s,;}]+)"
)
_SECRET_OPTION = re.compile(
    # ``--name value`` of a command line. What begins with a hyphen is the next option.
    rf"(?P<head>(?=--)(?i:{_SECRET_NAME})[ \t]+)(?:{_QUOTED}|[^\s-]\S*)"
)
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?(-----END \1-----|\Z)", re.S)
_END_OF_PEM_BLOCK = re.compile(r"\A[A-Za-z0-9+/=\s]*-----END ([A-Z0-9 ]*PRIVATE KEY)-----")
"""The rest of a private key, if the text is the last part of a log and begins within the key."""
_PASSWORD_IN_URL = re.compile(r"(?P<head>(?<![\w+.-])[a-z][a-z0-9+.-]*://[^\s/:@]*:)[^\s/]+(?=@)")


def without_secrets(text: str) -> str:
    """Return ``text`` with the values of names like ``password``, and private keys, removed."""
    for key in (_PEM_BLOCK, _END_OF_PEM_BLOCK):
        text = key.sub(rf"-----\1 {REMOVED}-----", text)
    for secret in (_YAML_SECRET, _NAMED_SECRET, _SECRET_OPTION, _PASSWORD_IN_URL):
        text = secret.sub(rf"\g<head>{REMOVED}", text)
    return text


def environment_without_secrets(environment: Mapping[str, str], prefix: str) -> dict[str, str]:
    """Return the variables whose names begin with ``prefix``, without secrets."""
    secret = re.compile(_SECRET_NAME, re.I)
    return {
        name: REMOVED if secret.fullmatch(name) else without_secrets(value)
        for name, value in sorted(environment.items())
        if name.startswith(prefix)
    }
