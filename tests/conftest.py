"""Tests share one thread of torch: small networks are faster so, and results do not vary."""

import os
import signal
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tools")]
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
torch.set_num_threads(1)
# A suite that a script starts in the background ignores Ctrl-C, and so would every process that
# tests start and stop with it.
signal.signal(signal.SIGINT, signal.default_int_handler)
