"""Run the store sessions of a partition: recovery, appends to a quorum, appends in doubt. Pure."""
