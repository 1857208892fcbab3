"""Waltz: a distributed write-ahead log for services that must agree."""
