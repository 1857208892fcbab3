"""What a client of the server may do, and how much. Pure."""
