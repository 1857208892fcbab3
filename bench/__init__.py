"""Measure throughput, latency and memory of a local cluster: `python -m bench --help`.

A *yardstick* is another program that does comparable work. Nothing here is part of the product.
"""
