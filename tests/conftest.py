"""Tests share one thread of torch: small networks are faster so, and results do not vary."""

import os
import signal
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
torch.set_num_threads(1)
# A suite that a script starts in the background ignores Ctrl-C, and so would every process that
# tests start and stop with it.
signal.signal(signal.SIGINT, signal.default_int_handler)
