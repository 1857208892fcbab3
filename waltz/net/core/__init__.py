"""The decisions and texts of the network layer that need no network. Pure."""
