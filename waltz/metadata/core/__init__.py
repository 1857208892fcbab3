"""Paths and data of the znodes, and the rules for changing the data. Pure."""
