"""Follow a log and store the mark, so that the next run prints only new lines.

The mark is the id of the last transaction that was printed. The program writes it to a file after
it has printed a line. So after a crash a line may be printed twice, but no line is omitted. Example
6 changes data and mark in one transaction.

    python examples/03_follow.py HOST:PORT MARK-FILE
"""

import sys
from pathlib import Path

import waltz.sync


def main(zookeeper: str, mark_file: Path) -> None:
    """Append a line to partition 0, then print all lines since the last run."""
    # Ids begin with 0, so the mark -1 means that nothing was printed.
    mark = int(mark_file.read_text()) if mark_file.exists() else -1
    new_mark = mark_file.with_name(mark_file.name + ".new")
    with waltz.sync.connect(zookeeper, root="/waltz", tls=waltz.PLAINTEXT) as client:
        client.append(0, b"one more line")
        end = client.high_water_mark(0)
        for transaction in client.stream(0, after=mark, until=end, data=True):
            print(transaction.id, transaction.data.decode(errors="replace"))
            # The file is replaced as a whole, so that a crash cannot leave half of a mark.
            new_mark.write_text(str(transaction.id))
            new_mark.replace(mark_file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
