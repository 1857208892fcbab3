"""Decide which HTTP requests are answered, by their Host header and their origin. Pure.

The attacker is a web page elsewhere whose host name resolves to the loopback address (DNS
rebinding). The browser then sends the requests of that page to the console, with the host name of
that page in the Host header. The console answers only requests with a name that it knows, so the
page gets nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def allowed_names(bound: str, additional: Collection[str]) -> frozenset[str]:
    """Return the names that a Host header may have.

    They are the names of the loopback address, the address ``bound`` that the console listens on,
    and the ``additional`` names.
    """
    return frozenset({*_LOOPBACK_NAMES, bound.lower(), *(name.lower() for name in additional)})


def is_host_name(name: str) -> bool:
    """Whether ``name`` can be the name in a Host header, as `host_name` returns it.

    The command line refuses any other name for --allow-host, because no request would have it.
    """
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return bool(name) and not any(each in ":/[]" or each.isspace() for each in name)
    return True


def is_loopback(host: str) -> bool:
    """Whether ``host`` is a loopback address: only this machine can connect to it."""
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

    ``host`` is the header Host, None if there is none. ``fetch_site`` is the header Sec-Fetch-Site,
    by which a browser says where a request comes from. It is None if there is no such header, or if
    the request may come from anywhere: other sites may have links to the page.
    """
    if host is None or host_name(host) not in allowed:
        return "this name is not served here: add it with --allow-host"
    if fetch_site in ("cross-site", "same-site"):
        return "requests from other sites are refused"
    return None
