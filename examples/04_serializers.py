"""Append values instead of bytes: with a serializer the client appends and reads your own type.

A type checker verifies the types: ``client`` is a ``SyncClient[Measurement]``, and a stream that
reads data returns ``Transaction[Measurement]``.

    python examples/04_serializers.py HOST:PORT
"""

import sys
from dataclasses import dataclass

import waltz.sync


@dataclass(frozen=True)
class Measurement:
    """The values in the log. Fields that have a default may be added later."""

    sensor: str
    celsius: float


def main(zookeeper: str) -> None:
    """Append three measurements and read them back."""
    with waltz.sync.connect(
        zookeeper,
        root="/waltz",
        tls=waltz.PLAINTEXT,
        serializer=waltz.DataclassSerializer(Measurement),
    ) as client:
        first = client.append(1, Measurement("roof", 4.5))
        client.append(1, Measurement("cellar", 11.0))
        last = client.append(1, Measurement("roof", 5.25))
        log = client.stream(1, after=first - 1, until=last, data=True)
        roof = [t.data.celsius for t in log if t.data.sensor == "roof"]
        print(f"roof: {roof}")


if __name__ == "__main__":
    main(sys.argv[1])
