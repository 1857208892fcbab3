"""asyncio transport: connections of frames, listeners, dialing, TLS. Touches the network.

* `connection`: `FrameConnection`, one end of a connection of one of the three protocols
* `frame_handler`: `FrameHandler`, by which a connection passes on its messages and its end
* `keep_alive`: the TCP options by which a connection notices a vanished peer
* `paused_peer`: notices that a peer has left while its connection is not read
* `long_answer`: receives a long message without copying it
* `decoding`: decodes received messages so that no message can end the process
* `accepted`: bounds the connections of a port and the memory of their incomplete messages
* `slow_readers`: bounds the memory of what the peers of a port have not read
* `listener`: accepts connections, and logs why a peer is refused
* `dialer`: opens connections
* `sockets`: connects to the first address of a host that answers
* `network`: `Network`, the interface by which a process opens and accepts connections, and its
  implementation with TCP
* `link`: `ReconnectingLink`, which opens a connection again whenever it is lost
* `core`: the parts that need no network, such as `Backoff`, the growing delays between attempts;
  `AllowedNames`, which decides by the names in a certificate whether a peer may use a port; and
  `join_address`, the text of an address
* `rpc`: sends requests to storage and admin ports, and matches the answers by sequence number
* `tls`: TLS settings, and the SSL contexts made from the settings
* `certificates`: reads and makes certificates in PEM files
"""

from waltz.net.accepted import AcceptedConnections
from waltz.net.connection import ConnectionLost, FrameConnection
from waltz.net.core.addresses import join_address
from waltz.net.core.allowed_names import EVERYONE, AllowedNames
from waltz.net.core.backoff import Backoff
from waltz.net.decoding import decode_received
from waltz.net.dialer import (
    DialFailed,
    DialRefused,
    TlsMismatch,
    connect_problem,
    dial,
    split_address,
)
from waltz.net.frame_handler import FrameHandler
from waltz.net.link import ReconnectingLink
from waltz.net.listener import Listener, ListenFailed
from waltz.net.network import TCP, Dialer, ListeningPort, Network
from waltz.net.rpc import RemoteFailure, RpcConnection
from waltz.net.sockets import open_streams
from waltz.net.tls import PLAINTEXT, TlsConfig, TlsConfigError

__all__ = [
    "EVERYONE",
    "PLAINTEXT",
    "TCP",
    "AcceptedConnections",
    "AllowedNames",
    "Backoff",
    "ConnectionLost",
    "DialFailed",
    "DialRefused",
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
    "TlsMismatch",
    "connect_problem",
    "decode_received",
    "dial",
    "join_address",
    "open_streams",
    "split_address",
]
