"""The text of an address, ``host:port``. Pure."""

from __future__ import annotations

MAX_PORT = 65_535


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around a host that is an IPv6 address.

    An IPv6 address contains colons: without brackets it is not clear where the host ends.
    `waltz.net.split_address` is the inverse.
    """
    is_bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if is_bare_ipv6 else f"{host}:{port}"


def address_problem(address: str) -> str | None:
    """Return why ``address`` (``host:port``) cannot be dialed, None if it can."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 5
    if not host or not is_number or not 0 < int(port) <= MAX_PORT:
        return f"it must be host:port, with a port from 1 to {MAX_PORT}"
    if any(character.isspace() or character == "/" for character in host):
        return "it contains a blank or a slash"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return "an IPv6 address is in brackets, such as [::1]:55280"
    return None
