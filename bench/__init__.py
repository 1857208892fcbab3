"""Benchmarks: a load generator, the shapes of load, tables, and programs to compare with.

`python -m bench --help` lists the measurements. Nothing here is part of the product.
"""
