"""Kill runs of Stable-Baselines3 with its checkpoint callback, for comparison.

Runs are resumed as its documentation says: load the newest checkpoint and learn the rest.
"""

import json
import signal
import subprocess
import time
from pathlib import Path

from torture.ground import Outcome, dice, timed

ROOT = Path(__file__).parents[2]
PYTHON, SCRIPT = ROOT / ".venv-peers/bin/python", ROOT / "benchmarks/peers/resume_sb3.py"


def rivals(root: Path, runs: int) -> Outcome:
    """Count as survived the final states that equal those of a run without kills."""
    with timed("SB3 with CheckpointCallback, killed and resumed") as outcome:
        if not PYTHON.exists():
            outcome.notes.append("not run: `make peers` installs Stable-Baselines3")
            return outcome
        start = time.perf_counter()
        expected, seconds = _learn(root / "whole"), time.perf_counter() - start
        again = _learn(root / "again")
        outcome.notes.append(f"two undisturbed runs are equal: {expected == again}")
        for number in range(runs):
            chance, folder = dice(f"rival{number}"), root / f"run{number}"
            for _ in range(2):
                process = subprocess.Popen([PYTHON, SCRIPT, folder], stderr=subprocess.DEVNULL)
                time.sleep(chance.uniform(0.6 * seconds, 0.95 * seconds))
                process.send_signal(signal.SIGKILL)
                process.wait()
            same = _learn(folder) == expected
            outcome.tried += 1
            outcome.survived += same
    return outcome


def _learn(folder: Path) -> object:
    subprocess.run([PYTHON, SCRIPT, folder], check=True, capture_output=True)
    return json.loads((folder / "result.json").read_text())
