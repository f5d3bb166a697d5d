"""Three iterations of each algorithm against recorded numbers: what a refactor must not move.

A file in this folder is a test: `{"env": …, "algorithm": …, "settings": {…}, "rows": […]}`.
`python tests/golden/test_golden.py` records files whose rows are empty; a commit that changes
recorded rows says why in its message.
"""

import json
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402 - the path comes first when this file is run as a script

from dna.runs.setup import How  # noqa: E402
from dna.runs.train import train  # noqa: E402
from helpers import tiny  # noqa: E402

FILES = sorted(HERE.glob("*.json"))
SEED = 11


def played(golden, folder):
    """The metrics of the run that a golden file describes."""
    config = tiny(golden["algorithm"], golden["env"], **golden["settings"])
    train(config, SEED, folder, how=How(tensorboard=False, threads=1))
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def numbers(row):
    """What of a row can be compared approximately: all but a score before any episode ended."""
    return {key: value for key, value in row.items() if value is not None}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_three_iterations_give_the_recorded_numbers(path, tmp_path):
    golden = json.loads(path.read_text())
    rows = played(golden, tmp_path / "run")
    assert len(rows) == len(golden["rows"]) >= 3
    for row, recorded in zip(rows, golden["rows"], strict=True):
        assert {k for k in row if row[k] is None} == {
            k for k in recorded if recorded[k] is None
        }
        # Another CPU may add in another order: the last digits are not ours to promise.
        assert numbers(row) == pytest.approx(numbers(recorded), rel=2e-3, abs=2e-5)


def test_every_algorithm_is_recorded_on_both_kinds_of_actions():
    names = {path.stem for path in FILES}
    assert names >= {
        f"{a}-{kind}" for a in ("dna", "ppo", "ppg") for kind in ("discrete", "real")
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    for file in FILES:
        content = json.loads(file.read_text())
        if not content["rows"]:
            with tempfile.TemporaryDirectory() as folder:
                content["rows"] = played(content, Path(folder) / "run")
            file.write_text(json.dumps(content, indent=1) + "\n")
            print("recorded", file.name)
