"""Decide the next step of an operation on a cluster. Pure: values in, steps out."""
