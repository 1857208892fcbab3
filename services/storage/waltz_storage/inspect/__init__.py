"""Read the files of a stopped storage, and never change them. Used by ``waltz disk``.

* `places`: finds what a path names, and whether a storage is running there
* `completeness`: finds out whether segments need a write-ahead log
* `control_reading`: reads the control file
* `wal_reading`: reads the write-ahead log
* `segment_check`: checks every record of a segment, also after damage
* `segment_reading`: applies `segment_check` to the files of a storage
* `start_rehearsal`: finds the changes that a start of the storage would make to the files
* `dry_disk`: a disk that keeps all changes in memory
"""
