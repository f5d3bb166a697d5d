"""Snapshots of Python environments: an object graph as arrays, and back into like objects.

Knows nothing about particular environments, and never imports or calls what a file names.
"""
