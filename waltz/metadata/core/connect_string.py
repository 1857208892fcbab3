"""Check the addresses of ZooKeeper before they are used. Pure."""

from __future__ import annotations

_FORM = "write host:port, or several with commas between"


def connect_string_problem(connect_string: str) -> str | None:
    """Return why ``connect_string`` cannot be the addresses of ZooKeeper, None if it can.

    A port may be missing, and a path may follow the last address.
    """
    if not connect_string.isprintable():
        return f"{connect_string!r} is not a ZooKeeper address: {_FORM}"
    for address in connect_string.partition("/")[0].split(","):
        host, colon, port = address.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = address.strip(), "2181"
        digits = port.isascii() and port.isdecimal() and len(port) <= 5
        if not host or " " in host or host.startswith("[") != host.endswith("]"):
            return f"{connect_string!r} has an empty or malformed ZooKeeper address: {_FORM}"
        if not digits or not 0 < int(port) < 1 << 16:
            return (
                f"the port {port!r} of the ZooKeeper address {address.strip()!r} is not between 1 "
                f"and 65535: {_FORM}"
            )
    return None
