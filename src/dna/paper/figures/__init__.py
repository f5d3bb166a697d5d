"""Figures of the paper from results of ours, as PNG bytes; the caller writes them."""
