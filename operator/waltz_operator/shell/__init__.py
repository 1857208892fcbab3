"""Observe clusters and perform planned steps: all input and output of the operator."""
