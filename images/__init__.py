"""Build the images of the processes: ``python -m images``, which is ``make images``.

``definitions`` lists the images. ``docker`` builds them from their Dockerfiles. ``layers`` builds
the same images without Docker from archives of root file systems. ``docker`` and ``layers`` write
one archive per image, for `docker load`, `kind load image-archive` and `ctr images import`. Touches
the disk, starts programs.
"""
