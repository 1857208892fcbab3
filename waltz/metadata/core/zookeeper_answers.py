"""Read ZooKeeper's connect strings, and its answers to the command ``srvr``. Pure.

`waltz.metadata.zookeeper_probe` sends the command.
"""

from __future__ import annotations

from collections.abc import Mapping

_DEFAULT_PORT = 2181
UNREACHABLE = "cannot be reached"
"""Begins the text about a server to which no connection can be opened."""


def split_connect_string(connect_string: str) -> list[tuple[str, int]]:
    """Return the hosts and ports in a connect string; parts that are no address are left out.

    `core.connect_string` says what is wrong with such a part.
    """
    addresses = []
    for part in connect_string.partition("/")[0].split(","):
        host, colon, port = part.strip().rpartition(":")
        # If an IPv6 address has no port, its last colon is within the brackets.
        if not colon or port.endswith("]"):
            host, port = part.strip(), str(_DEFAULT_PORT)
        if host and port.isascii() and port.isdecimal():
            addresses.append((host.strip("[]"), int(port)))
    return addresses


def judge_answer(answer: bytes) -> str:
    """Return what a server does, by its answer to ``srvr``, such as "answers as leader"."""
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

    ``answers`` has for each server's address what the server does (`judge_answer`, or a text that
    begins with `UNREACHABLE`). ``tls`` says whether the session would use TLS. The answers are
    always from connections without TLS.
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
