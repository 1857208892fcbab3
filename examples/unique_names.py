"""A registry of unique names: of several programs that want the same name, one gets it.

The state is a map from names to owners, in memory, which follows partition 0. ``register`` decides
by that map under a lock of the name. If another program has taken the name in between, the server
refuses the append, and the decision is made again by the newer map.

    python examples/unique_names.py HOST:PORT OWNER NAME...
"""

import asyncio
import sys
from dataclasses import dataclass, field

import waltz

PARTITION = 0


@dataclass
class Names:
    """The owner of each name.

    ``applied`` is the id of the last transaction that the map contains.
    """

    owners: dict[str, str] = field(default_factory=dict)
    applied: int = -1

    async def mark(self, partition: int) -> int:
        """Return the id of the last transaction that the map contains."""
        return self.applied

    async def apply(self, transaction: waltz.Transaction[dict[str, str]]) -> None:
        """Add a registration to the map."""
        self.owners[transaction.data["name"]] = transaction.data["owner"]
        self.applied = transaction.id


async def register(
    follower: waltz.StateFollower[dict[str, str]], names: Names, name: str, owner: str
) -> bool:
    """Register ``name`` for ``owner``; return whether it belongs to ``owner`` afterwards."""

    def decide(attempt: waltz.Attempt) -> waltz.Draft[dict[str, str]] | None:
        if name in names.owners:
            return None
        return waltz.Draft({"name": name, "owner": owner}, write_locks=[waltz.Lock(name, 0)])

    await follower.submit(PARTITION, decide)
    return names.owners.get(name) == owner


async def main(zookeeper: str, owner: str, wanted: list[str]) -> None:
    """Register names, and print which of them the owner got."""
    names = Names()
    serializer = waltz.JsonSerializer()
    async with (
        waltz.connect(
            zookeeper, root="/waltz", tls=waltz.PLAINTEXT, serializer=serializer
        ) as client,
        waltz.StateFollower(client, names, [PARTITION]) as follower,
    ):
        await follower.caught_up()
        for name in wanted:
            got = await register(follower, names, name, owner)
            print(f"{name}: {'yours' if got else 'taken by ' + names.owners[name]}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
