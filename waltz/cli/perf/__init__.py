"""``waltz perf``: generate load and measure a cluster."""
