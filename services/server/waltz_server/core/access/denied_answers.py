"""Answer requests for which a client has no right, as the client's protocol version allows. Pure.

From `DENIALS_SINCE` on, RequestDenied answers every such request. In older versions, two kinds of
requests have an answer that fits: a request for data gets an error, and a mount gets NOT_READY,
after which the client waits before it mounts again. The other requests have no answer that refuses
them. If the server dropped such a request, the client would repeat it for ever, and would not learn
why. So a function here raises ProtocolViolation, and the server closes the connection.
"""

from __future__ import annotations

from collections.abc import Iterable

from waltz.protocol import ReqId
from waltz.protocol import client_server as cs
from waltz.protocol.client_numbers import DENIALS_SINCE
from waltz.protocol.frames import ProtocolViolation
from waltz.protocol.records import wrapped

ReadingRequest = (
    cs.MountRequest
    | cs.FeedRequest
    | cs.FlushRequest
    | cs.HighWaterMarkRequest
    | cs.TransactionDataRequest
    | cs.RecordsRequest
    | cs.HeadersRequest
)
"""The requests that need the right to read their partition."""


def request_denial(request: ReadingRequest, denial: str, version: int) -> cs.Message:
    """Return the answer to ``request``, for a client of protocol ``version``.

    ``denial`` is the text that says which right is missing. Raises ProtocolViolation if ``version``
    has no answer that fits.
    """
    if version >= DENIALS_SINCE:
        return cs.RequestDenied(request.req_id, denial)
    match request:
        case cs.MountRequest(req_id):
            return cs.MountResponse(req_id, cs.MountState.NOT_READY)
        case cs.TransactionDataRequest(req_id, transaction_id):
            return cs.TransactionDataResponse(req_id, transaction_id, None, error=denial)
        case _:
            raise ProtocolViolation(denial)


def append_denials(req_ids: Iterable[ReqId], denial: str, version: int) -> list[cs.RequestDenied]:
    """Return one RequestDenied for each append, which the caller has kept out of the append queue.

    Raises ProtocolViolation if the client's ``version`` has no RequestDenied.
    """
    if version < DENIALS_SINCE:
        raise ProtocolViolation(denial)
    return [cs.RequestDenied(req_id, denial) for req_id in req_ids]


def batch_req_ids(first: ReqId, count: int) -> list[ReqId]:
    """Return the request ids of the ``count`` appends of a batch with the request id ``first``.

    The appends have consecutive sequence numbers, which are 32-bit numbers and wrap.
    """
    return [
        ReqId(first.client_id, first.generation, first.partition, wrapped(first.seq + position))
        for position in range(count)
    ]
