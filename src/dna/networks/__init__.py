"""Tensors and modules: encoders, action distributions, normalizers, batches and frames.

Nothing here steps an environment, computes a loss or writes a file.
"""
