"""What a cluster shares in ZooKeeper: formats, paths, rules, and the only access to it.

Pure modules decide: ``codec``, ``modified_utf8``, ``formats``, ``paths``, ``policy``, ``admin``,
``recipe``. The shell acts: ``store`` (the interface of a compare-and-set store), ``kazoo_store``
(the real one), ``memory`` (one that lives in the process), ``cluster`` (typed access),
``admin_lock``, ``membership`` (who owns which partitions).
"""
