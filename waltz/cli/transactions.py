"""Format a transaction: as a JSON value for scripts, or as one line for people."""

from __future__ import annotations

import base64
from typing import TypedDict

from waltz.client import Transaction


class TransactionValue(TypedDict):
    """The JSON value of a transaction; ``data`` is None if it is not text."""

    partition: int
    id: int
    client_id: int
    generation: int
    seq: int
    header: int
    data: str | None
    data_base64: str


def as_value(transaction: Transaction) -> TransactionValue:
    """Return the JSON value; ``data`` is None if it is not text, ``data_base64`` is always set."""
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
    """Return one line for people: partition and id, client id, header, data."""
    data: bytes = transaction.data
    shown = _printable(data)
    place = f"{transaction.partition}/{transaction.id}"
    return f"{place:<12} client {transaction.req_id.client_id:<4} {transaction.header:>3}  {shown}"


def _printable(data: bytes) -> str:
    """Return ``data`` as text if it is printable, else its Python literal."""
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
