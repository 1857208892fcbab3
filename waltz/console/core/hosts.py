"""Decide which requests are answered, by their Host header and their origin. Pure.

A web page elsewhere may let its own name resolve to the loopback address (DNS rebinding). The
browser then sends the requests of that page to the console, with that name in the Host header. Only
requests with a name that the console knows are answered, so such a page gets nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def allowed_names(bound: str, also: Collection[str]) -> frozenset[str]:
    """Return the names that a Host header may have.

    They are the names of the loopback address, the address ``bound`` that the console listens on,
    and the names in ``also``.
    """
    return frozenset({*_LOOPBACK_NAMES, bound.lower(), *(name.lower() for name in also)})


def is_host_name(name: str) -> bool:
    """Whether `host_name` can return ``name`` for some Host header, apart from upper case."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(name) and not any(each in ":/[]" or each.isspace() for each in name)
    return True


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can connect to the address ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """Return the name in a Host header, without its port and without the brackets of IPv6."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()


def refusal(host: str | None, fetch_site: str | None, allowed: Collection[str]) -> str | None:
    """Return why a request is refused, None if the request is answered.

    ``host`` is the header Host. ``fetch_site`` is the header Sec-Fetch-Site, which browsers set. It
    is None if there is no such header, or if the request may come from a link on another site.
    """
    if host is None or host_name(host) not in allowed:
        return "this name is not served here: add it with --allow-host"
    if fetch_site in ("cross-site", "same-site"):
        return "requests from other sites are refused"
    return None
