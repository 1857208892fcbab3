"""Read ZooKeeper's connect strings, and its answers to the command ``srvr``. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_DEFAULT_PORT = 2181
UNREACHABLE = "cannot be reached"
"""Begins the text about a server to which no connection can be opened."""


def split_connect_string(connect_string: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a connect string; parts that are no address are left out."""
    addresses = []
    for part in connect_string.partition("/")[0].split(","):
        host, colon, port = part.strip().rpartition(":")
        # Without a port, the last colon of an IPv6 address is within its brackets.
        if not colon or port.endswith("]"):
            host, port = part.strip(), str(_DEFAULT_PORT)
        if host and port.isascii() and port.isdecimal():
            addresses.append((host.strip("[]"), int(port)))
    return addresses


def judge_answer(answer: bytes) -> str:
    """Return what a server's answer to ``srvr`` means, such as "answers as leader"."""
    text = answer.decode("ascii", errors="replace")
    for line in text.splitlines():
        if line.startswith("Mode: "):
            return f"answers as {line.removeprefix('Mode: ')}"
    if "not currently serving requests" in text:
        return "runs, but serves no requests, because it has no majority of the ensemble"
    if "not in the whitelist" in text:
        return "runs, and does not allow the command srvr"
    if not answer:
        return "closed the connection without an answer: its port may use TLS"
    return "does not answer like a ZooKeeper server"


def why_no_session(answers: Mapping[str, str], *, tls: bool) -> str:
    """Return what each server does while no session can be opened, and the remedy.

    ``answers`` has the texts for the addresses of the servers. ``tls`` tells whether the session
    would use TLS; the answers are those of connections without TLS.
    """
    states = ", ".join(f"{address} {answer}" for address, answer in answers.items())
    if all(answer.startswith(UNREACHABLE) for answer in answers.values()):
        remedy = "check that ZooKeeper is running and that the address is right"
    elif tls:
        remedy = (
            "check that it is running, that its port uses TLS, and that it accepts the certificate "
            "of zookeeper.tls.certificate"
        )
    else:
        remedy = (
            "check that it is running, and if its port uses TLS, set zookeeper.tls.* in the "
            "settings file (--cluster of the command line), or zookeeper_access of waltz.connect"
        )
    return f"{states}; {remedy}"
