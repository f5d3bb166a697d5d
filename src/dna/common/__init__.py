"""Errors, messages, random streams, processes, locks and durable files, used by all rooms.

Nothing here knows of learning; importing it loads neither torch nor an environment library.
"""
