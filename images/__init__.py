"""Makes the images of the processes: ``python -m images``, which is ``make images``.

``docker`` builds the Dockerfiles; ``layers`` makes the same images of archives of root file systems
where there is no Docker. Both leave one archive an image, which `docker load`, `kind load
image-archive` and `ctr images import` read. Touches the disk, and starts programs.
"""
