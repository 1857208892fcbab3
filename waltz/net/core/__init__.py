"""The values of the network layer that need no network. Pure."""
