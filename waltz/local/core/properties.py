"""Write values of Java's properties files, such as ZooKeeper's ``zoo.cfg``. Pure."""

from __future__ import annotations


def escape_value(value: str) -> str:
    """Return the text that ``java.util.Properties.load`` reads as ``value``.

    The text has only printable characters of ASCII. If Java reads the file from an ``InputStream``,
    each byte is a character of ISO-8859-1, whatever the encoding of the locale. So a character
    outside ASCII must be an escape sequence for each of its units in UTF-16.
    """
    # A part of a path may be no text of the file system's encoding. Python has a lone surrogate for
    # each such byte, which is written as it is.
    encoded = value.encode("utf-16-be", "surrogatepass")
    units = (int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2))
    return "".join(_escape_unit(unit) for unit in units)


def _escape_unit(unit: int) -> str:
    """Return the text for one unit of UTF-16."""
    character = chr(unit)
    if character == "\\":
        return "\\\\"
    # The space is escaped, too: Java skips spaces at the begin of a value.
    return character if "!" <= character <= "~" else f"\\u{unit:04x}"
