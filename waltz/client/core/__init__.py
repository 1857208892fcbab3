"""The decisions and the values of the client. A decision is about one partition. Pure.

* `appends`: sends appends; `waiting_appends`: those that wait for a mount; `sent_appends`:
  determines the outcomes of the appends that were sent
* `append_values`: an append and its outcome; `batches`: the outcomes of a batch in the public API
* `append_search`: finds the outcome of one append in the log
* `mount`: the mount of a partition; `feed`: the position of a stream; `feed_need`: whether appends
  need the feed
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
