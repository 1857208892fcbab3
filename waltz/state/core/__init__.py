"""Rules and errors of a state store. Pure."""
