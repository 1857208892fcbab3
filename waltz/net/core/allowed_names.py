"""Decide by the names in a peer's certificate whether the peer may use a port. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAME_KINDS = ("DNS", "URI")
"""The kinds of subject alternative names that are compared with the allowed names."""


@dataclass(frozen=True, slots=True)
class AllowedNames:
    """The peers that may use a port: those whose certificate has at least one of ``names``.

    If ``names`` is None, every peer is allowed. ``setting`` is the name of the setting that lists
    the names; error texts contain it.
    """

    setting: str
    names: tuple[str, ...] | None

    def refusal(self, certificate: Mapping[str, Any] | None) -> str | None:
        """Return why a peer with ``certificate`` is refused, None if it is allowed.

        ``certificate`` is in the form of `ssl.SSLSocket.getpeercert`. It is None or empty if the
        peer has shown no verified certificate: without TLS, or with TLS but without a CA.
        """
        if self.names is None:
            return None
        if not certificate:
            return (
                "it has shown no verified certificate; before it may use this port, it must show "
                f"one with a name that {self.setting} contains"
            )
        peer_names = certificate_names(certificate)
        if not peer_names.isdisjoint(self.names):
            return None
        shown = ", ".join(sorted(peer_names)) or "no name"
        return (
            f"its certificate has {shown}; {self.setting} must contain a name of the certificate "
            "before the peer may use this port"
        )


EVERYONE = AllowedNames("", None)
"""Every peer is allowed."""


def certificate_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common name of the subject, and the DNS names and URIs of a certificate."""
    names = {value for kind, value in certificate.get("subjectAltName", ()) if kind in _NAME_KINDS}
    for attributes in certificate.get("subject", ()):
        names.update(value for kind, value in attributes if kind == "commonName")
    return frozenset(names)
