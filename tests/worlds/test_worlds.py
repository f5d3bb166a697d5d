"""Every game and task of the paper: `make worlds`.

57 Atari games, 16 Procgen games and 8 MuJoCo tasks go through a whole DNA iteration with a
tiny network; snapshots of every Atari game go on to the bit (those of MuJoCo: contract tests).
"""

import json
import math

import pytest

from dna.config import EnvConfig
from dna.config.environments import Atari
from dna.config.overrides import tweak
from dna.config.presets import for_environment
from dna.envs.benchmark_scores import games
from dna.envs.mujoco import PAPER
from dna.envs.procgen import GAMES
from dna.runs.setup import How
from dna.runs.train import train
from snapshots import FULL, continued

pytestmark = pytest.mark.worlds

ATARI = [f"ALE/{game}-v5" for game in games("Atari-57")]
PROCGEN = [f"procgen/{game}" for game in GAMES]
MUJOCO = [f"{task}-v5" for task in PAPER]
WORLDS = ATARI + PROCGEN + MUJOCO
#: Observation's shape and number of actions, by how an id begins; the first that fits counts.
SPACES = {
    "ALE/Skiing": ([84, 84, 4], [9]),  # ALE has no fire there: it would restart the game
    "ALE/": ([84, 84, 4], [18]),
    "procgen/": ([64, 64, 3], [15]),
}


def shrunk(env_id: str):
    """The family's DNA with eight environments, two short rollouts and a tiny network."""
    config = for_environment(env_id)
    changes = {"agents": 8, "horizon": 32, "interactions": 512, "network.width": 16}
    for phase in config.phases:
        changes |= {f"{phase.name}.sgd.minibatch": 128, f"{phase.name}.sgd.epochs": 1}
    return tweak(config, **changes, **{"warm_up.high": 20})


def test_these_are_the_papers_81_worlds():
    assert (len(ATARI), len(PROCGEN), len(MUJOCO)) == (57, 16, 8)
    assert len(set(WORLDS)) == 81


@pytest.mark.parametrize("env_id", WORLDS)
def test_a_dna_iteration(env_id, tmp_path):
    train(shrunk(env_id), 0, tmp_path / "run", how=How(threads=1, tensorboard=False))
    rows = [
        json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    ]
    assert rows[-1]["interactions"] >= 512
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    assert len(numbers) > 20
    assert all(math.isfinite(number) for number in numbers)
    policy = json.loads((tmp_path / "run/policy/policy.json").read_text())
    spaces = policy["observation"]["shape"], policy["action"]["sizes"]
    expected = [spec for start, spec in SPACES.items() if env_id.startswith(start)]
    if expected:
        assert spaces == expected[0]
    else:
        assert policy["observation"]["kind"] == "vector"
        assert policy["action"]["kind"] == "gaussian"


@pytest.mark.parametrize("env_id", [*ATARI, "ALE/Tetris-v5"])
@pytest.mark.parametrize("mode", ["hard", "easy"])
def test_an_atari_snapshot_goes_on_to_the_bit(env_id, mode):
    # So short that each game is reset behind the snapshot: some carry memory over a reset.
    rules = {"max_frames": 1600}
    if mode == "easy":
        rules |= {"sticky": 0.0, "actions": "minimal", "life_loss": "terminal"}
    result = continued(EnvConfig(id=env_id, atari=Atari(**rules)), FULL, agents=2)
    assert result.mismatches == []
    assert result.ends >= 2
