"""The decisions of the client, for one partition at a time. Pure.

* `appends`: in-doubt appends and their outcomes; `append_values`, `batches`
* `mount`: the mount of a partition; `feed`: the position of a stream; `read_ahead`
* `requests`: read requests; `directory`: which server owns which partition
* `effects`: the messages and results that these parts hand to the shell
* `codec`: the frequent messages
* `serializers`, `values`, `log_stream`, `errors`, `metrics`: the API
* `ranges`: partitions, transaction ids and locks as typed on a command line
"""
