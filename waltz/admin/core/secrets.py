"""Remove secrets from texts that leave the machine: settings, logs, environment. Pure.

A secret is the value of a name such as ``password``, in any of the forms below, or a private key.
Each pattern of a form has the group ``head``: what precedes the value, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

REMOVED = "(removed)"

# The lookbehind lets a match begin only where a word begins. Otherwise each character of a word
# would be tried as the beginning, and a word of 100,000 characters in a log would take minutes.
_SECRET_NAME = (
    r"(?<![\w.-])"
    r"[\w.-]*(?:password|passwd|passphrase|pwd|secret|token|credential|authorization"
    r"|(?:api|private|access)[_-]?key)[\w.-]*"
)
_QUOTED = (
    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|''|[^'\\\n])*'"
    r"|(?P<escape>\\+)(?P<quote>[\"'])[^\n]*?(?:(?<!\\)(?P=escape)(?P=quote)|(?=\n|\Z))"
)
"""A text in quotes. A quote within it is escaped by a backslash, in YAML also by a second quote.

In the second line of the pattern, the whole text is within another text in quotes, such as JSON in
a message of a JSON log: its quotes are escaped, and those within it by more backslashes. If the
last quote is missing, the text ends with the line.
"""
_NEXT_LINE = r"\n(?:[ \t]*\n)*+(?P=indent)[ \t]"
"""The beginning of a line that is indented more than the name of the value, after empty lines.
``indent`` is the group of `_YAML_SECRET` with the indentation of the name.

Without the possessive ``*+``, a line of blanks could match in two ways. A text with many such lines
and without a closing quote would then take minutes.
"""
_YAML_SECRET = re.compile(
    # A line ``name: value``. All values continue in the lines that are indented more than the name.
    rf"^(?P<head>(?P<indent>[ \t]*)(?P<item>-[ \t]+)?"
    rf"[\"']?(?i:{_SECRET_NAME})[\"']?[ \t]*:(?:[ \t]+|(?=\n)))"
    # A value that begins in the next line, such as a list or a map.
    rf"(?:(?:{_NEXT_LINE}[^\n]*)+"
    # A value in quotes.
    rf"|\"(?:\\.|[^\"\\\n]|{_NEXT_LINE})*\"|'(?:\\.|''|[^'\\\n]|{_NEXT_LINE})*'"
    # A block of text, which follows | or >.
    rf"|[|>][^\n]*(?:{_NEXT_LINE}[^\n]*)*"
    # Any other value, except one in brackets, which `_NAMED_SECRET` finds. If the line begins with
    # a hyphen (the group ``item``), a further line with a colon does not belong to the value: it is
    # another name of the same item. A value without quotes has no colon before a blank.
    rf"|[^\s{{\[][^\n]*(?(item)(?:{_NEXT_LINE}(?![^\n]*:(?:[ \t\n]|\Z))[^\n]*)*"
    rf"|(?:{_NEXT_LINE}[^\n]*)*))",
    re.M,
)
_NAMED_SECRET = re.compile(
    # ``name=value`` or ``name: value`` anywhere, as in JSON, a log line or an assignment. First, a
    # value in quotes.
    rf"(?P<head>(?i:{_SECRET_NAME})(?:\\*[\"'])?\s*(?:=>|[:=])\s*)(?:{_QUOTED}"
    # A list or map in brackets, over several lines if it has at most 1,000 characters, otherwise to
    # the end of the line. The bound keeps the time for a text with many open brackets to seconds.
    r"|\[(?:[^\]]{0,1000}\]|[^\n]*)|\{(?:[^}]{0,1000}\}|[^\n]*)"
    # A list of lines that begin with a hyphen.
    r"|-[ \t][^\n]*(?:\n[ \t]*-[ \t][^\n]*)*"
    # Any other value, after the name of an HTTP authentication scheme, if there is one.
    r"|(?:(?i:bearer|basic|digest)[ \t]+)?[^\s,;}]+)"
)
_SECRET_OPTION = re.compile(
    # ``--name value`` of a command line. What begins with a hyphen is the next option, not a value.
    rf"(?P<head>(?=--)(?i:{_SECRET_NAME})[ \t]+)(?:{_QUOTED}|[^\s-]\S*)"
)
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY)-----.*?(-----END \1-----|\Z)", re.S)
_END_OF_PEM_BLOCK = re.compile(r"\A[A-Za-z0-9+/=\s]*-----END ([A-Z0-9 ]*PRIVATE KEY)-----")
"""The end of a private key, at the beginning of a text that is the last part of a longer log."""
_PASSWORD_IN_URL = re.compile(
    r"(?P<head>(?<![\w+.-])(?i:[a-z][a-z0-9+.-]*)://[^\s/:@]*:)[^\s/]+(?=@)"
)


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
