"""What docs/reliability.md promises, where it once was not true."""

import shutil

import pytest

from dna.errors import StorageFailure
from dna.setup import How
from dna.train import train
from helpers import bytes_of, tiny

CONFIG = tiny("dna", "CartPole-v1", interactions=768)
HOW = How(checkpoint_every=64, tensorboard=False, threads=1)
LOGS = ("metrics.jsonl", "episodes.csv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(CONFIG, 3, folder, how=HOW)
    return folder


@pytest.fixture
def run(finished, tmp_path):
    """A run that is over."""
    return shutil.copytree(finished, tmp_path / "run")


class At:
    """Does something when an iteration is over."""

    def __init__(self, iteration, work):
        self.iteration, self.work = iteration, work

    def start(self):
        pass

    def write(self, row):
        if row.iteration == self.iteration:
            self.work()

    def close(self):
        pass


# ── work is never thrown away by itself ───────────────────────────────────────────────────


@pytest.mark.parametrize("every", [64, 100_000])
@pytest.mark.parametrize("gone", [("done",), ("done", "policy"), ("done", "metrics.jsonl")])
def test_a_run_that_was_over_is_not_begun_again_by_itself(run, every, gone):
    for name in (*gone, "checkpoints"):
        path = run / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    left = [name for name in (*LOGS, "policy/policy.safetensors") if (run / name).exists()]
    before = bytes_of(run, *left)
    with pytest.raises(StorageFailure, match="has no checkpoint that could be used"):
        train(CONFIG, 3, run, how=How(checkpoint_every=every, tensorboard=False, threads=1))
    assert bytes_of(run, *left) == before
