"""Which database errors are transient, and the errors of a state store. Pure."""
