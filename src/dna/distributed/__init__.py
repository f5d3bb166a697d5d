"""The ranks of a run started by torchrun: who they are, what they exchange, how work is split.

Only `world` imports torch.distributed; other packages receive a `World` or a `Share`.
"""
