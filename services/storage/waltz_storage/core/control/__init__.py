"""Pure. The control file: session, marks and flags of every partition.

* `control_format`: the bytes of the file, and which of a partition's two structs is current
* `control_file`: the open file, and the checks that the file belongs to this cluster
* `flushed_marks_format`, `flushed_marks`: up to which record each log was flushed
* `directory_pair`: two files that tie a separate directory for the control file (the meta
  directory) to the directory of the partitions (the data directory)
"""
