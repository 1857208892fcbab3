"""TLS settings, and the SSL contexts made from the settings. Touches PEM files.

The rules are those of Waltz 0.13.2 (spec/wire.md section 1), with one exception, the peer's name:

* A listener without a certificate makes a self-signed certificate when the process starts.
* A process without a CA accepts every peer.
* A process with a CA requires from every peer a certificate of that CA. When it dials, it also
  requires that the certificate contains the peer's name, which 0.13.2 does not require.

A change of the files applies to the next handshake, so that certificates are renewed without a
restart (test_new_authority_applies_to_new_connections_only). If the changed files cannot be used,
the previous context stays in use: a half-written file must not stop a process from accepting
connections (test_unusable_replaced_files_keep_the_old_ones_and_are_logged_once).
"""

from __future__ import annotations

import datetime
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from waltz.net.certificates import Stamp, expiry, load_self_signed, stamp_of

log = logging.getLogger(__name__)

_SOON_DAYS = 14.0
"""A certificate that expires within this time causes a warning when it is loaded."""
_SECONDS_PER_DAY = 86_400
_OPENSSL_NAME_MISMATCHES = (62, 64)
"""OpenSSL's codes for a certificate with another host name, and with another IP address."""


class TlsConfigError(ValueError):
    """The TLS settings cannot be used. The text names the files and the reason."""


@dataclass(frozen=True, slots=True)
class _LoadedContext:
    """An SSL context, and when its certificate expires (None: it has no certificate)."""

    context: ssl.SSLContext
    expires: datetime.datetime | None


class _ReloadedContext:
    """Keeps an SSL context that was loaded from files, and replaces it when the files change."""

    __slots__ = ("_loaded", "_stamp")

    def __init__(self) -> None:
        self._loaded: _LoadedContext | None = None
        self._stamp: Stamp = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the settings and sends them to executors. An SSLContext cannot be pickled,
        # so the copy is empty and loads its own context from the files.
        return _ReloadedContext, ()

    def current(
        self, files: tuple[Path, ...], load: Callable[[], _LoadedContext]
    ) -> _LoadedContext:
        """Return the context of ``files``.

        Call ``load`` at the first call, and when the files have changed since the last call. If
        ``load`` fails, return the context of the last load that did not fail. Raises TlsConfigError
        if no load has succeeded yet.
        """
        stamp = stamp_of(files)
        if self._loaded is None:
            self._loaded, self._stamp = load(), stamp
        elif stamp != self._stamp:
            # Store the stamp before loading: if the load fails, it is not repeated, and the error
            # is not logged again, until the files change again.
            self._stamp = stamp
            try:
                self._loaded = load()
            except TlsConfigError as error:
                log.error(
                    "TLS files changed, but cannot be used; keeping the previous ones: %s", error
                )
            else:
                names = ", ".join(map(str, files))
                log.info("TLS files changed: new connections use them: %s", names)
        return self._loaded


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The TLS settings of a process.

    ``certificate`` and ``key`` are PEM files; set both or neither. ``ca`` is a PEM file of trusted
    certificates. If ``ca`` is set, accepted and dialed peers are verified. ``server_name`` is the
    name that a dialed peer's certificate must contain; None: the dialed host. Set
    ``verify_server_name`` to false for peers of 0.13.2, whose certificates need no name. The
    private fields keep the contexts that were loaded from these files.
    """

    enabled: bool = True
    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    server_name: str | None = None
    verify_server_name: bool = True
    _listening: _ReloadedContext = field(
        default_factory=_ReloadedContext, init=False, repr=False, compare=False
    )
    _dialing: _ReloadedContext = field(
        default_factory=_ReloadedContext, init=False, repr=False, compare=False
    )

    def listening_context(self) -> ssl.SSLContext | None:
        """Return the context for an accepted connection, None for plaintext.

        Call this for each new connection, so that changed files take effect. Raises TlsConfigError
        if the files cannot be used and were never loaded before.
        """
        if not self.enabled:
            return None
        return self._listening.current(self._files(), self._load_listening).context

    def dialing_context(self) -> ssl.SSLContext | None:
        """Return the context for dialing one peer, None for plaintext.

        Call this for each new connection, so that changed files take effect. Raises TlsConfigError
        if the files cannot be used and were never loaded before.
        """
        if not self.enabled:
            return None
        return self._dialing.current(self._files(), self._load_dialing).context

    def certificate_days_left(self) -> float | None:
        """Return the days until the listeners' certificate expires, None for plaintext.

        The number is negative after the certificate has expired.

        Raises TlsConfigError if the files cannot be used and were never loaded before.
        """
        if not self.enabled:
            return None
        expires = self._listening.current(self._files(), self._load_listening).expires
        return None if expires is None else round(_days_until(expires), 2)

    def explain(self, error: ssl.SSLError, host: str) -> str:
        """Return why a TLS handshake with ``host`` failed, and the remedy if it is known."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            return error.reason or str(error)
        if error.verify_code in _OPENSSL_NAME_MISMATCHES:
            return (
                f"its certificate is not valid for {self.server_name or host!r}: set "
                "tls.serverName to a name that the certificates of all peers contain"
            )
        return f"{error.reason}: {error.verify_message}; peers must show a certificate of {self.ca}"

    def _files(self) -> tuple[Path, ...]:
        return tuple(file for file in (self.certificate, self.key, self.ca) if file is not None)

    def _load_listening(self) -> _LoadedContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        expires = self._load(context)
        if expires is None:
            try:
                expires = load_self_signed(context)
            except OSError as error:
                raise TlsConfigError(
                    f"cannot make a self-signed TLS certificate: {error}; set a certificate and "
                    "its key"
                ) from error
        if self.ca is None:
            log.warning("TLS: no CA is set, so peers are not verified: every peer is accepted")
        else:
            context.verify_mode = ssl.CERT_REQUIRED
        return _LoadedContext(context, expires)

    def _load_dialing(self) -> _LoadedContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # Before `verify_mode`: with `check_hostname` set, a context refuses CERT_NONE.
        context.check_hostname = self.ca is not None and self.verify_server_name
        context.verify_mode = ssl.CERT_NONE if self.ca is None else ssl.CERT_REQUIRED
        if self.ca is not None and not self.verify_server_name:
            log.warning(
                "TLS: tls.verifyServerName is off, so the names of peers are not verified: any "
                "process with a certificate that a CA in %s issued can impersonate them",
                self.ca,
            )
        return _LoadedContext(context, self._load(context))

    def _load(self, context: ssl.SSLContext) -> datetime.datetime | None:
        """Load the files into ``context``; return when the certificate expires.

        Returns None if no certificate is set. Raises TlsConfigError.
        """
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if (self.certificate is None) != (self.key is None):
            raise TlsConfigError("TLS certificate and key go together: set both or neither")
        expires = None
        try:
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, _refuse_password)
                # Programs without a type checker may pass a text, as the ssl module accepts it.
                expires = expiry(Path(self.certificate))
            if self.ca is not None:
                context.load_verify_locations(self.ca)
                # As with a trust store of 0.13.2, each certificate in the file is trusted by
                # itself. Without this flag, OpenSSL refuses an authority whose issuer is not in the
                # file.
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        except (OSError, ssl.SSLError, ValueError) as error:
            files = ", ".join(map(str, self._files()))
            # The text of an OSError begins with a number, such as [Errno 2]; that of an SSLError,
            # which is an OSError, too, does not.
            why: object = error
            if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
                why = error.strerror
            raise TlsConfigError(
                f"cannot use the TLS files ({files}): {why}. They must be readable PEM files"
            ) from None
        if expires is not None:
            self._warn_of_expiry(_days_until(expires))
        return expires

    def _warn_of_expiry(self, days_left: float) -> None:
        """Log a warning if the certificate has expired or expires soon."""
        if days_left >= _SOON_DAYS:
            return
        if days_left > 0:
            when = f"expires in {days_left:.1f} days"
        else:
            when = f"expired {-days_left:.1f} days ago"
        log.warning("TLS certificate %s: %s, renew it", self.certificate, when)


PLAINTEXT = TlsConfig(enabled=False)


def _refuse_password() -> str:
    """Raise an error when OpenSSL needs the password of a key.

    Without this callback OpenSSL asks for the password on the terminal, and the process blocks.
    """
    raise ValueError("the key is encrypted, and no password can be given: decrypt it")


def _days_until(end: datetime.datetime) -> float:
    """Return the days from now until ``end``, negative after ``end``."""
    time_left = end - datetime.datetime.now(datetime.UTC)
    return time_left.total_seconds() / _SECONDS_PER_DAY
