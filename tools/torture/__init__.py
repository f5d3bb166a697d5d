"""The campaign of docs/reliability.md: everything that can go wrong, done on purpose.

`make torture` runs it whole and prints one table; `make test` runs a short form of it.
"""
