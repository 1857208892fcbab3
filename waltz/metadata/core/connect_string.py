"""Check the addresses of ZooKeeper before they are used. Pure."""

from __future__ import annotations

_DEFAULT_PORT = "2181"
_MAX_PORT = 65_535
_FORM = "write host:port, or several with commas between"


def connect_string_problem(connect_string: str) -> str | None:
    """Return why ``connect_string`` cannot be the addresses of ZooKeeper, None if it can.

    An address may have no port, and a path may follow the last address.
    """
    if not connect_string.isprintable():
        return f"{connect_string!r} is not a ZooKeeper address: {_FORM}"
    for address in connect_string.partition("/")[0].split(","):
        host, colon, port = address.strip().rpartition(":")
        # If an IPv6 address has no port, its last colon is within the brackets.
        if not colon or port.endswith("]"):
            host, port = address.strip(), _DEFAULT_PORT
        # Not more than five digits: `int` refuses a very long text.
        is_number = port.isascii() and port.isdecimal() and len(port) <= 5
        has_one_bracket = host.startswith("[") != host.endswith("]")
        if not host or " " in host or has_one_bracket:
            return f"{connect_string!r} has an empty or malformed ZooKeeper address: {_FORM}"
        if not is_number or not 0 < int(port) <= _MAX_PORT:
            return (
                f"the port {port!r} of the ZooKeeper address {address.strip()!r} is not between 1 "
                f"and {_MAX_PORT}: {_FORM}"
            )
    return None
