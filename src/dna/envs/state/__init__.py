"""Snapshots of Python environments: object graphs written to arrays and put back.

Knows nothing of particular environments, and never imports or calls what a file names.
"""
