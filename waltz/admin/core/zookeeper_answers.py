"""Read ZooKeeper's connect strings, and its answers to the command ``srvr``. Pure."""

from __future__ import annotations

_DEFAULT_PORT = 2181


def split_connect_string(connect_string: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of a connect string; parts that are no address are left out."""
    found = []
    for part in connect_string.partition("/")[0].split(","):
        host, colon, port = part.strip().rpartition(":")
        if not colon:
            host, port = port, str(_DEFAULT_PORT)
        if host and port.isascii() and port.isdecimal():
            found.append((host.strip("[]"), int(port)))
    return found


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
