"""Say why a peer has probably closed a connection without an error. Pure."""

from __future__ import annotations


def loss_reason(*, before_hello: bool, secured: bool) -> str:
    """Return why the peer has probably closed the connection.

    ``before_hello`` says whether this side has dialed the connection and still waits for the Hello,
    the first message of the peer. ``secured`` says whether the connection uses TLS.
    """
    if not before_hello:
        return "closed by the peer"
    if secured:
        # With TLS 1.3 the handshake of this side ends before the peer has verified this side's
        # certificate, so a refused certificate shows only as a closed connection.
        return (
            "closed by the peer before its Hello: if it requires a certificate of its CA, show "
            "one by tls.certificate and tls.key; the log of the peer has the reason"
        )
    return "closed by the peer before its Hello: if its port uses TLS, turn TLS on here"
