"""The text of an address, ``host:port``. Pure."""

from __future__ import annotations


def join_address(host: str, port: int) -> str:
    """Return ``host:port``. An IPv6 address as the host is put in brackets.

    Without brackets a reader cannot tell where the host ends. `waltz.net.split_address` is the
    inverse.
    """
    bare_ipv6 = ":" in host and not host.startswith("[")
    return f"[{host}]:{port}" if bare_ipv6 else f"{host}:{port}"
