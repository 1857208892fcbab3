"""Pure. The log of one partition: segment files with records, each with an index file.

Read in this order:

* `segment_format`: the bytes of both files, as Waltz 0.13.2 writes them
* `segment_files`: creating, opening and removing the two files of a segment
* `tail_segment`: the last segment, the only one that is written
* `segment_reads`: reading consecutive records of one segment, or only their headers
* `log_segments`: all segments of a log, and which one holds a transaction
* `log_reads`: reading a log in steps, between which records may be appended
* `flushed_end`: what is known about the end of a log before its files are opened
* `log_check`: checking each record of a part of a log, and naming those that are damaged
* `log_repair`: replacing damaged records by those of a peer
* `log_cut`: where a truncation may cut a log
* `partition_log`: the log: append, read, truncate, repair
* `opening_errors`: why a file may fail to open without being damaged
* `segment_scan`: reading a segment up to the first invalid record
* `damaged_scan`: where a scan continues after damaged records
* `log_recovery`: where a log ends when its files are opened after a crash
* `log_opening`: finding the files of a log, recovering them, removing them
"""
