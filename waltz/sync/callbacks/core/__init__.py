"""Contexts, progress, metrics and errors of callbacks. Pure."""
