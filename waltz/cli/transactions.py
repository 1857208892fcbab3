"""Format a transaction: as a JSON value for scripts, or as one line for people."""

from __future__ import annotations

import base64
from typing import TypedDict

from waltz.client import Transaction


class TransactionValue(TypedDict):
    """The JSON value of a transaction; ``data`` is None if the data is not UTF-8 text.

    ``client_id``, ``generation`` and ``seq`` are the request id of the append.
    """

    partition: int
    id: int
    client_id: int
    generation: int
    seq: int
    header: int
    data: str | None
    data_base64: str


def as_value(transaction: Transaction) -> TransactionValue:
    """Return the JSON value of ``transaction``."""
    data: bytes = transaction.data
    return {
        "partition": transaction.partition,
        "id": transaction.id,
        "client_id": transaction.req_id.client_id,
        "generation": transaction.req_id.generation,
        "seq": transaction.req_id.seq,
        "header": transaction.header,
        "data": _text(data),
        "data_base64": base64.b64encode(data).decode("ascii"),
    }


def as_line(transaction: Transaction) -> str:
    """Return one line for people: partition and id, client id, header, data.

    For example ``0/17         client 3      0  hello``.
    """
    data: bytes = transaction.data
    shown = _printable(data)
    place = f"{transaction.partition}/{transaction.id}"
    return f"{place:<12} client {transaction.req_id.client_id:<4} {transaction.header:>3}  {shown}"


def _printable(data: bytes) -> str:
    """Return the text that shows ``data`` in one line.

    Printable UTF-8 text is shown as it is. Other text, and data that is not text, is shown as a
    Python literal, because control characters would change the terminal.
    """
    text = _text(data)
    if text is None:
        return repr(data)
    return text if text.isprintable() else repr(text)


def _text(data: bytes) -> str | None:
    """Return ``data`` as text, None if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
