"""The storage node: keeps the bytes of partitions, and knows nothing of locks or quorums.

From the disk up; modules marked * are pure:

* `disk`: the narrow border to the operating system
* `segment_format`*, `control_format`*: bytes of the files
* `recovery`*: where a log ends when its files are opened
* `segment_reads`*: reading records of a segment, or only their headers
* `segment`, `log`, `opening`: the files of a segment, the segments of a log, finding them
* `control`: sessions, marks and switches of all partitions
* `pairing`: a control file in a directory of its own
* `fencing`*: who may use a partition
* `partition`, `directory`: one partition, and all of a node
* `durability`, `engine`, `engine_thread`: rounds of writing, and the threads that do them
* `admin_desk`, `range_checksum`: what administrators ask for
* `measures`, `connections`, `config`, `node`, `main`: the process around it
* `errors`*: why the node says no
"""
