"""Pure. The control file: session, marks and switches of every partition.

* `control_format`: the bytes of the file, and which of a partition's two structs is current
* `control_file`: the open file, and the checks that it belongs to this cluster
* `directory_pair`: marks that bind a meta directory, which holds the file, to a data directory
"""
