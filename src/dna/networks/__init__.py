"""Networks and tensors: encoders, action distributions, normalizers, batches and frames.

Nothing here may step an environment, compute a loss or write a file.
"""
