"""The console: a web page that shows a cluster and its log, and changes nothing.

* `core` decides what is shown, from samples of the cluster; it is pure
* `shell` samples the cluster, reads the log, and serves the page; it touches the network
* ``static`` has the page itself: HTML, CSS and JavaScript, without a build step
"""
