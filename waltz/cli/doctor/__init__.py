"""``waltz doctor``: what is wrong with a cluster, in words."""
