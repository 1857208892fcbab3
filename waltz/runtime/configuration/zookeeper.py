"""The settings of connections to ZooKeeper: TLS and authentication. Touches nothing.

By default, these connections do not use TLS, unlike those to Waltz's own ports: Waltz 0.13.2
connects to ZooKeeper in plaintext, and a ZooKeeper has a separate port for TLS.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from waltz.metadata.zookeeper_access import ZooKeeperAccess
from waltz.net.tls import PLAINTEXT
from waltz.runtime.configuration.settings import (
    Group,
    OptionalFile,
    OptionalText,
    Settings,
    Switch,
    group,
    setting,
)
from waltz.runtime.configuration.tls import TlsSettings


class ZooKeeperTlsSettings(TlsSettings):
    """The TLS settings of connections to ZooKeeper."""

    enabled: Switch = setting("enabled", "use TLS for the connection to ZooKeeper", False)
    certificate: OptionalFile = setting("certificate", "PEM file to present to ZooKeeper", None)
    ca: OptionalFile = setting(
        "ca", "PEM file to verify ZooKeeper with; if not set, every server is accepted", None
    )
    server_name: OptionalText = setting(
        "serverName",
        "name that the certificates of ZooKeeper must have; if not set, the host connected to",
        None,
    )
    verify_server_name: Switch = setting(
        "verifyServerName", "off accepts a certificate of the CA with any name", True
    )


class AuthenticationSettings(Group):
    """The identity of a process in ZooKeeper."""

    file: OptionalFile = setting(
        "file",
        "file with one line, user:password, for ZooKeeper's scheme digest; znodes that the process "
        "creates can then be written only by this user",
        None,
    )
    certificate: Switch = setting(
        "certificate",
        "znodes that the process creates can be written only with the subject of "
        "zookeeper.tls.certificate",
        False,
    )


class ZooKeeperSettings(Settings):
    """The settings of every process that connects to ZooKeeper."""

    zookeeper_tls: ZooKeeperTlsSettings = group("zookeeper.tls", ZooKeeperTlsSettings())
    authentication: AuthenticationSettings = group(
        "zookeeper.authentication", AuthenticationSettings()
    )

    def problems(self, ignored: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence for each combination of values that cannot be used.

        ``ignored``, the settings of `without_effect` that are set, is not used here.
        """
        tls, authentication = self.zookeeper_tls, self.authentication
        # Waltz 0.13.2 had no settings for key stores of ZooKeeper connections.
        yield from tls.tls_problems("zookeeper.", old_settings={})
        if not tls.enabled and tls != ZooKeeperTlsSettings():
            # A setting differs from its default, so the user wants TLS. If this were no error, a
            # user who forgot `enabled` would send everything in plaintext.
            yield "zookeeper.tls.* has no effect without zookeeper.tls.enabled: set it to true"
        if authentication.file is not None and authentication.certificate:
            yield (
                "zookeeper.authentication.file and zookeeper.authentication.certificate exclude "
                "each other: set one"
            )
        if authentication.file is not None and (not tls.enabled or tls.ca is None):
            yield (
                "zookeeper.authentication.file has a password that is sent to ZooKeeper: set "
                "zookeeper.tls.enabled and zookeeper.tls.ca, so that only ZooKeeper receives it"
            )
        if authentication.certificate and (not tls.enabled or tls.certificate is None):
            yield (
                "zookeeper.authentication.certificate needs zookeeper.tls.enabled and "
                "zookeeper.tls.certificate: set them"
            )

    @cached_property
    def zookeeper_access(self) -> ZooKeeperAccess:
        """How this process connects to ZooKeeper."""
        tls = self.zookeeper_tls
        return ZooKeeperAccess(
            tls.config() if tls.enabled else PLAINTEXT,
            credentials=self.authentication.file,
            by_certificate=self.authentication.certificate,
        )
