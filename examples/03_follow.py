"""Follow a log and store the mark: each line is printed once, however often this program runs.

The mark is in a file. It is written after the line is printed. So a crash between the two prints a
line twice, but never omits one. Example 6 changes data and mark in one transaction.

    python examples/03_follow.py HOST:PORT MARK-FILE
"""

import sys
from pathlib import Path

import waltz.sync


def main(zookeeper: str, mark_file: Path) -> None:
    """Print what was appended to partition 0 since the last run."""
    mark = int(mark_file.read_text()) if mark_file.exists() else -1
    with waltz.sync.connect(zookeeper, root="/waltz", tls=waltz.PLAINTEXT) as client:
        client.append(0, b"one more line")
        end = client.high_water_mark(0)
        for transaction in client.stream(0, after=mark, until=end, data=True):
            print(transaction.id, transaction.data.decode(errors="replace"))
            mark_file.write_text(str(transaction.id))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
