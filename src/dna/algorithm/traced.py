"""Losses recorded as TorchScript, which calls the same operators without the interpreter.

The forward pass of a small network and its loss are a hundred calls from Python, and threads
that compute pieces of a mini-batch wait for the interpreter at each of them. A recorded pass is
one call that does not hold it, with the same operators in the same order and therefore the same
bits. PyTorch has deprecated TorchScript: where it is missing or fails, or where a recorded pass
does not repeat the eager one to the last bit, passes remain eager (ADR 0025).
"""

import threading
import warnings
from typing import Any

import torch
from torch import Tensor, nn

#: Calls before a module is recorded, which takes a tenth of a second.
PATIENCE = 100
#: Recording uses variables of the whole process.
_RECORDING = threading.Lock()


class Traced:
    """Calls a module, recorded for inputs with one number of rows."""

    def __init__(self, module: nn.Module, rows: int) -> None:
        """Inputs with another number of rows are processed eagerly; 0: all are."""
        self.module = module
        self.rows = rows
        self.calls = 0
        self.recorded: Any = None
        self.tried = False

    def __call__(self, rows: int, *inputs: Any) -> Any:
        """Call the module with inputs of so many rows."""
        if rows != self.rows:
            return self.module(*inputs)
        if not self.tried:
            self.calls += 1
            if self.calls > PATIENCE:
                self._record(inputs)
        if self.tried and self.recorded is not None:
            return self._call(inputs)
        return self.module(*inputs)

    def _call(self, inputs: tuple[Any, ...]) -> Any:
        # Without optimizations that would change the operators; a setting of each thread.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return self.recorded(*inputs)

    def _record(self, inputs: tuple[Any, ...]) -> None:
        """Record a call, and keep the recording if it returns what an eager call does."""
        with _RECORDING, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it is deprecated, and what it cannot check
            if self.tried:
                return
            try:
                recorded = torch.jit.trace(  # type: ignore[no-untyped-call]
                    self.module, inputs, strict=False, check_trace=False
                )
                self.recorded = recorded
                same = _equal(self._call(inputs), self.module(*inputs))
            except Exception:  # whatever it is, the eager module works without it
                same = False
            self.recorded = recorded if same else None
            self.tried = True


def _equal(one: Any, other: Any) -> bool:
    """Whether two outputs, tensors or tuples and dictionaries of them, hold the same bits."""
    if isinstance(one, dict):
        return list(one) == list(other) and _equal((*one.values(),), (*other.values(),))
    if isinstance(one, tuple):
        pairs = zip(one, other, strict=True)
        return isinstance(other, tuple) and all(_equal(a, b) for a, b in pairs)
    return isinstance(one, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
