"""Tests of larger changes of a cluster's shape: its pools and the number of its storages.

Some changes are reverted half-way, and during others pods are killed.

`python -m e2e shapes` runs them, and `python -m e2e killed shapes` with killed operators.
"""
