"""The ranks of a run that torchrun started: who they are and how they share data.

Only this room imports torch.distributed; everything else is handed a `World` or a `Share`.
"""
