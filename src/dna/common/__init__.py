"""What every other room needs: errors, messages, randomness, processes, durable files.

It knows nothing of learning; importing it loads neither torch nor an environment library.
"""
