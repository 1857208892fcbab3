"""Tests of larger changes of a cluster's shape, each also reverted half-way and disturbed.

`python -m e2e shapes` runs them, and `python -m e2e killed shapes` with killed operators.
"""
