"""Fault injection: provoke every kind of failure that docs/reliability.md describes.

`make torture` runs all parts and prints one table; `make test` runs a small part of them.
"""
