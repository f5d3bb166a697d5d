"""Errors, messages, random streams, processes, locks and durable files, used by all packages.

Nothing here knows about learning; importing it loads neither torch nor an environment library.
"""
