"""asyncio transport: connections of frames, listeners, dialing, TLS. Touches the network.

* `connection`: `FrameConnection`, one end of a connection that speaks one of the protocols
* `listener`: accepts connections, and logs why a peer is refused
* `dialer`: opens connections
* `network`: `Network`, through which a process opens and accepts connections: TCP by default
* `link`: `ReconnectingLink`, which opens a connection again whenever it is lost
* `core`: `Backoff`, the growing delays between attempts
* `rpc`: requests and answers matched by sequence number, for the storage and admin ports
* `tls`: TLS settings and the contexts made from them; `certificates`: the PEM files
"""

from waltz.net.connection import ConnectionLost, FrameConnection, FrameHandler
from waltz.net.core.backoff import Backoff
from waltz.net.dialer import DialFailed, dial
from waltz.net.link import ReconnectingLink
from waltz.net.listener import Listener, ListenFailed
from waltz.net.network import TCP, Dialer, ListeningPort, Network
from waltz.net.rpc import RemoteFailure, RpcConnection
from waltz.net.tls import PLAINTEXT, TlsConfig, TlsConfigError

__all__ = [
    "PLAINTEXT",
    "TCP",
    "Backoff",
    "ConnectionLost",
    "DialFailed",
    "Dialer",
    "FrameConnection",
    "FrameHandler",
    "ListenFailed",
    "Listener",
    "ListeningPort",
    "Network",
    "ReconnectingLink",
    "RemoteFailure",
    "RpcConnection",
    "TlsConfig",
    "TlsConfigError",
    "dial",
]
