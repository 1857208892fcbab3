"""Decide what an operation on a cluster does next. Pure: values in, steps out."""
