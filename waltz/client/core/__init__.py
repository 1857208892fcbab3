"""The decisions of the client, for one partition at a time. Pure.

* `appends`: sends appends; `waiting_appends`: those that wait for a mount; `sent_appends`:
  determines the outcomes of the appends that were sent
* `append_values`: an append and its outcome; `batches`: the outcomes of a batch in the public API
* `mount`: the mount of a partition; `feed`: the position of a stream
* `read_ahead`: how many reads a stream may have open
* `requests`: read requests; `directory`: which server owns which partition
* `effects`: the messages and results that these parts produce
* `codec`: encodes and decodes the frequent messages
* `serializers`, `values`, `log_stream`, `errors`, `metrics`: parts of the public API
* `ranges`: parses partitions, transaction ids and locks of a command line
"""
