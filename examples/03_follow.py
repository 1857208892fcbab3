"""Following a log and keeping one's place: each line is printed once, however often this is run.

The place is a file. It is written after the line, so that a crash between the two prints a line
again rather than never; example 6 has both in one transaction.

    python examples/03_follow.py HOST:PORT PLACE-FILE
"""

import sys
from pathlib import Path

import waltz.sync


def main(zookeeper: str, place: Path) -> None:
    """Print what has come to partition 0 since the last time."""
    mark = int(place.read_text()) if place.exists() else -1
    with waltz.sync.connect(zookeeper, root="/waltz", tls=waltz.PLAINTEXT) as client:
        client.append(0, b"one more line")
        end = client.high_water_mark(0)
        for transaction in client.stream(0, after=mark, until=end, data=True):
            print(transaction.id, transaction.data.decode(errors="replace"))
            place.write_text(str(transaction.id))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
