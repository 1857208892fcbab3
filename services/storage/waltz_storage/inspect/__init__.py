"""Reads the files of a stopped storage, and never changes them.

* `places`: what a path names, and whether a storage uses it
* `control_reading`: the control file
* `segment_check`: every record of a segment, past damage, over byte sources
* `segment_reading`: the same over the files of a storage
* `start_rehearsal`: what a start of the storage would do to the files
* `dry_disk`: a disk that keeps all changes in memory
"""
