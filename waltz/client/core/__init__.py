"""The decisions and the values of the client. A decision is about one partition. Pure.

The words of these modules (docs/concepts.md explains the ideas):

* The *generation* of a partition counts its assignments to a server.
* The *feed* of a partition has its transactions in order, without their data. The server sends the
  feed to a client that has *mounted* the partition, and continues it on request.
* A *mark* is the id of a transaction. The *high-water mark* is that of the last committed one. The
  *client's mark* is the transaction after which the client mounts the partition.
* An append is *in doubt* from when it is sent until its outcome is known.
* A *flush* is a request. The server answers it with the high-water mark when all earlier appends of
  the partition have ended.

The modules:

* `appends`: sends appends; `waiting_appends`: the appends that wait for a mount; `sent_appends`:
  determines the outcomes of the appends that were sent
* `append_values`: an append and its outcome; `batches`: the outcomes of a batch in the public API
* `append_search`: finds the outcome of one append in the log
* `mount`: mounts a partition; `feed`: the position of a stream; `feed_need`: whether the appends of
  a client need the feed
* `read_ahead`: how many reads a stream may have open
* `requests`: read requests; `directory`: which server owns which partition
* `effects`: the messages and results that the decisions produce
* `codec`: encodes and decodes the frequent messages
* `arguments`: checks the arguments of public calls
* `deserializing`: reads data with the serializer of the client
* `stored_ranges`, `equal_records`: verify records in their form on disk
* `column_batch`, `arrow_records`, `many_checksums`: thousands of records at once, as columns
* `serializers`, `values`, `log_stream`, `errors`, `metrics`: parts of the public API
"""
