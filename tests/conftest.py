"""Tests share one thread of torch: small networks are faster so, and results do not vary."""

import os
import signal
import sys
from pathlib import Path

# Before torch is loaded: threads that wait for work must not take another process's core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
torch.set_num_threads(1)
# A suite that a script starts in the background ignores Ctrl-C, and so would every process that
# tests start and stop with it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _one_thread():
    """A run on images takes all cores; the tests after it shall not."""
    yield
    torch.set_num_threads(1)
