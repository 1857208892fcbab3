"""The settings of TLS. Touches nothing: `waltz.net` reads the files that the settings name.

If TLS is on, a setting of Waltz 0.13.2 that names a key store needs a PEM file that replaces the
key store. Without the PEM file, the setting is an error. If it were only a warning, a process that
with 0.13.2 accepted only the peers of one CA would here accept every peer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from waltz.net.tls import TlsConfig
from waltz.runtime.configuration.key_stores import (
    identity_commands,
    key_store_problem,
    trust_commands,
)
from waltz.runtime.configuration.settings import Group, OptionalFile, OptionalText, Switch, setting

READS_PEM_FILES = "this system reads PEM files, named by *.tls.certificate, *.tls.key and *.tls.ca"
"""Why the ``*.ssl.*`` settings of 0.13.2 have no effect."""


class TlsSettings(Group):
    """The TLS settings of a process that accepts and opens connections."""

    enabled: Switch = setting("enabled", "secure every connection; off means plaintext", True)
    certificate: OptionalFile = setting(
        "certificate",
        "PEM file to present; if not set, listeners present a self-signed certificate",
        None,
    )
    key: OptionalFile = setting("key", "PEM file of the certificate's key", None)
    ca: OptionalFile = setting(
        "ca", "PEM file to verify peers with; if not set, every peer is accepted", None
    )
    server_name: OptionalText = setting(
        "serverName",
        "name that the certificates of dialed peers must have; if not set, the host connected to",
        None,
    )
    verify_server_name: Switch = setting(
        "verifyServerName",
        "off accepts any name, for peers of 0.13.2, whose certificates may have no name",
        True,
    )

    def config(self) -> TlsConfig:
        """Return these settings in the form that `waltz.net` uses for connections."""
        # The fields have the same names in both classes.
        return TlsConfig(**dict(self))

    def tls_problems(
        self, prefix: str, old_settings: Mapping[str, Any], *other_stores: str
    ) -> Iterator[str]:
        """Yield a sentence for each problem of the TLS settings; none if TLS is off.

        ``prefix`` is the first part of the names of these settings, such as ``server.``.
        ``old_settings`` has the values of those settings of Waltz 0.13.2 that are set, and that
        this system does not use. The sentence about a key store has the commands that convert it.
        ``other_stores`` are the prefixes of further settings of 0.13.2, whose key stores these
        settings replace, too.
        """
        if not self.enabled:
            return
        tls = f"{prefix}tls."
        if (self.certificate is None) != (self.key is None):
            yield f"{tls}certificate and {tls}key go together: set both or neither"
        for old_prefix in (prefix, *other_stores):
            if self.certificate is None:
                replacing = f"{tls}certificate and {tls}key"
                store = f"{old_prefix}ssl.keyStore"
                yield from key_store_problem(store, identity_commands, replacing, old_settings)
            if self.ca is None:
                store = f"{old_prefix}ssl.trustStore"
                yield from key_store_problem(store, trust_commands, f"{tls}ca", old_settings)
        if self.ca is None and self.server_name is not None:
            yield f"{tls}serverName is verified only with {tls}ca: set both"
