"""The path of each znode, or node of ZooKeeper, of a cluster. Pure.

Source: spec/zookeeper.md section 1.
"""

from __future__ import annotations

from dataclasses import dataclass

SERVER_PREFIX = "s_"
"""The beginning of the name of a server's ephemeral node. A ten-digit sequence number follows."""


class BadRoot(ValueError):
    """The configured cluster root is not a usable znode path."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The znode paths below one ``cluster.root``.

    Raises BadRoot if ``root`` is not absolute, is "/", has a trailing or double slash or a blank,
    or uses a name that ZooKeeper reserves.
    """

    root: str

    def __post_init__(self) -> None:
        names = self.root.split("/")
        if not self.root.startswith("/") or "" in names[1:]:
            raise BadRoot(
                f"cluster root {self.root!r} must be an absolute path below '/' without a "
                "trailing or double slash, for example /waltz/cluster"
            )
        if any(character.isspace() or character == "\0" for character in self.root):
            raise BadRoot(f"cluster root {self.root!r} must not contain blanks")
        if names[1] == "zookeeper" or {".", ".."} & set(names):
            raise BadRoot(f"cluster root {self.root!r} uses a name that ZooKeeper reserves")

    def ancestors(self) -> tuple[str, ...]:
        """Return the paths above the root, without "/", the shortest first."""
        return ancestors(self.root)

    @property
    def server_descriptors(self) -> str:
        """Parent of the servers' nodes. Its data are the partition assignment."""
        return f"{self.root}/serverDescriptors"

    @property
    def new_server_descriptor(self) -> str:
        """Path at which a server creates its node. ZooKeeper appends a sequence number."""
        return self.server_descriptor(SERVER_PREFIX)

    def server_descriptor(self, name: str) -> str:
        """Path of the server's node called ``name`` in the list of children."""
        return f"{self.server_descriptors}/{name}"

    @property
    def ids(self) -> str:
        """Parent of the two id counters."""
        return f"{self.root}/ids"

    @property
    def client_id(self) -> str:
        """The counter of client ids: the last id that a client took."""
        return f"{self.ids}/client"

    @property
    def server_id(self) -> str:
        """The counter of server ids: the last id that a server took."""
        return f"{self.ids}/server"

    @property
    def store(self) -> str:
        """The cluster key and the number of partitions. Parent of all znodes about storages."""
        return f"{self.root}/store"

    @property
    def partitions(self) -> str:
        """Parent of the partitions' metadata."""
        return f"{self.store}/partition"

    def partition(self, partition: int) -> str:
        """Metadata of one partition."""
        return f"{self.partitions}/{partition}"

    @property
    def group(self) -> str:
        """Which storage belongs to which group."""
        return f"{self.store}/group"

    @property
    def assignment(self) -> str:
        """Which partitions each storage holds."""
        return f"{self.store}/assignment"

    @property
    def connection(self) -> str:
        """The storages' admin ports."""
        return f"{self.store}/connection"

    @property
    def access(self) -> str:
        """The rules that say which client may do what. The node is missing in an open cluster."""
        return f"{self.root}/access"

    @property
    def transport(self) -> str:
        """Whether the servers use TLS. The node is missing if no server has declared it."""
        return f"{self.root}/transport"

    @property
    def outside(self) -> str:
        """The addresses that clients outside the cluster's network use.

        The node is missing in a cluster without outside addresses.
        """
        return f"{self.root}/outside"

    @property
    def admin_lock(self) -> str:
        """Ephemeral node of the process that is changing the storage maps or the access rules."""
        return f"{self.store}/adminLock"


def ancestors(path: str) -> tuple[str, ...]:
    """Return the paths above ``path``, without "/", the shortest first."""
    names = path.split("/")[1:-1]
    return tuple("/" + "/".join(names[: depth + 1]) for depth in range(len(names)))
