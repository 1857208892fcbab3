"""What the console shows: values computed from samples of a cluster and from records. Pure."""
