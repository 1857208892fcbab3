"""The options of a client, which an application passes to `waltz.connect`. Touches nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, get_args

from waltz.client.core.arguments import MOST_INT, check_count, check_seconds, shown
from waltz.client.core.deserializing import Unreadable
from waltz.client.core.values import Serializer
from waltz.metadata.core.outside_addresses import Access
from waltz.metadata.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess
from waltz.net import TlsConfig


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of a client, with their defaults. Times are in seconds.

    Attributes:
        tls: The TLS settings of connections to servers. They are used even if the servers have
            declared something else in ZooKeeper. None: TLS is off if the servers have declared
            there that they use plaintext. Otherwise TLS is on, and any server certificate is
            accepted, as in Waltz 0.13.2.
        access: Which addresses of servers the client dials. ``"inside"``: those that the servers
            have registered, which are valid in the network of the cluster. ``"outside"``: the
            outside addresses in ZooKeeper (``waltz cluster outside``), for a client outside of that
            network. None: ``"inside"``, unless the environment or a profile says otherwise.
        zookeeper_access: TLS and authentication of the connection to ZooKeeper. By default the
            connection is plaintext, and the client is not authenticated.
        serializer: Converts the application's values to bytes and back. None: data are bytes.
        unreadable: What happens to data that the serializer cannot read. ``"raise"``: streams and
            reads raise DataUnreadable; a stream first returns the transactions that precede the
            unreadable one. ``"skip"``: streams leave the transaction out, reads raise
            DataUnreadable. ``"raw"``: the data are the bytes.
        session_timeout_ms: The session timeout that the client requests from ZooKeeper, in
            milliseconds.
        connect_timeout: How long ZooKeeper may take to answer when the client is opened; with the
            access ``"outside"`` also how long the client waits until a server has an outside
            address. None: no limit.
        append_timeout: The timeout of each append and submit that is called without a timeout.
            None: no timeout.
        answer_timeout: The timeout of each other call that is called without a timeout. It does not
            limit streams, which wait for new transactions, or ``outcome``, which may read the whole
            log. None: no timeout.
        max_in_flight: The largest number of appends without an outcome per partition. More appends
            wait.
        long_wait_seconds: The time after which the client asks the server for the outcome of an
            append, by a flush request. `waltz.connect` does not accept this option.
        stream_buffer: The number of transactions that a stream of feeds, such as a stream without
            data, holds before it stops reading.
    """

    tls: TlsConfig | None = None
    access: Access | None = None
    zookeeper_access: ZooKeeperAccess = OPEN_ACCESS
    serializer: Serializer[Any] | None = None
    unreadable: Unreadable = "raise"
    session_timeout_ms: int = 30_000
    connect_timeout: float | None = 10.0
    append_timeout: float | None = 30.0
    answer_timeout: float | None = 30.0
    max_in_flight: int = 1000
    long_wait_seconds: float = 5.0
    stream_buffer: int = 10_000

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError for a wrong option.

        Most options are used long after the client was opened, and some by tasks in the background,
        where an error would not reach the application.
        """
        if not isinstance(self.tls, TlsConfig | None):
            raise TypeError(
                f"tls is {shown(self.tls)}: it must be waltz.PLAINTEXT, or a waltz.TlsConfig such "
                "as TlsConfig(ca=path)"
            )
        if self.access not in (None, *get_args(Access)):
            raise ValueError(
                f"access is {shown(self.access)}: it must be {_one_of(get_args(Access))}"
            )
        if not isinstance(self.zookeeper_access, ZooKeeperAccess):
            raise TypeError(
                f"zookeeper_access is {shown(self.zookeeper_access)}: it must be a "
                "waltz.ZooKeeperAccess"
            )
        _check_serializer(self.serializer)
        choices = get_args(Unreadable)
        if self.unreadable not in choices:
            raise ValueError(
                f"unreadable is {shown(self.unreadable)}: it must be {_one_of(choices)}"
            )
        check_count("session_timeout_ms", self.session_timeout_ms, MOST_INT)
        check_seconds("connect_timeout", self.connect_timeout, optional=True)
        check_seconds("append_timeout", self.append_timeout, optional=True)
        check_seconds("answer_timeout", self.answer_timeout, optional=True)
        check_count("max_in_flight", self.max_in_flight)
        check_seconds("long_wait_seconds", self.long_wait_seconds)
        check_count("stream_buffer", self.stream_buffer)


class _PlainOptions(TypedDict, total=False):
    """The options that are passed to `ClientOptions` unchanged."""

    access: Access | None
    unreadable: Unreadable
    session_timeout_ms: int
    connect_timeout: float | None
    append_timeout: float | None
    answer_timeout: float | None
    max_in_flight: int
    stream_buffer: int


class ConnectOptions(_PlainOptions, total=False):
    """The options that `waltz.connect` accepts. `ClientOptions` has their meaning and defaults."""

    tls: TlsConfig | None
    zookeeper_access: ZooKeeperAccess


def client_options(serializer: Serializer[Any] | None, options: ConnectOptions) -> ClientOptions:
    """Return the options of a client that is opened with these arguments of `waltz.connect`.

    This removes ``tls`` and ``zookeeper_access`` from ``options``. Raises TypeError or ValueError.
    """
    known = ConnectOptions.__annotations__
    unknown = sorted(options.keys() - known.keys())
    if unknown:
        raise TypeError(
            f"connect has no option {unknown[0]}; its options are {', '.join(sorted(known))}"
        )
    tls = options.pop("tls", None)
    zookeeper_access = options.pop("zookeeper_access", OPEN_ACCESS)
    others: _PlainOptions = options
    return ClientOptions(
        serializer=serializer, tls=tls, zookeeper_access=zookeeper_access, **others
    )


def _check_serializer(serializer: object) -> None:
    """Raise TypeError if ``serializer`` is neither None nor an object like a `Serializer`."""
    if isinstance(serializer, type):
        name = serializer.__name__
        raise TypeError(f"serializer is the class {name}: pass an instance, {name}()")
    if serializer is not None and not (
        callable(getattr(serializer, "serialize", None))
        and callable(getattr(serializer, "deserialize", None))
    ):
        raise TypeError(
            f"serializer is {shown(serializer)}: it must be an object with the methods serialize "
            "and deserialize"
        )


def _one_of(choices: tuple[str, ...]) -> str:
    """Return two or more choices as a text, such as "'raise', 'skip' or 'raw'"."""
    return f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
