"""Snapshots of Python environments: object graphs saved as arrays and restored in place.

Knows nothing about particular environments, and never imports or calls what a file names.
"""
