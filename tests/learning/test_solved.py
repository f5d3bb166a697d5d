"""Tasks solved within their preset's budget, on seeds that no preset was tuned on.

Minutes each: `make slow`. The full table (more seeds) is in docs/results.md.
"""

import pytest

from dna.config.presets import for_environment
from dna.runs.setup import How
from dna.runs.train import train

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("algorithm", ["dna", "ppo", "ppg"])
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_cartpole_is_solved_in_100_000_interactions(algorithm, seed, tmp_path):
    config = for_environment("CartPole-v1", algorithm)
    assert config.interactions == 100_000
    result = train(config, seed, tmp_path / "run", how=How(tensorboard=False))
    assert result["score"] >= 475


@pytest.mark.parametrize(("env_id", "least"), [("Acrobot-v1", -100), ("Pendulum-v1", -250)])
@pytest.mark.parametrize("seed", [100, 101, 102])
def test_acrobot_and_pendulum_are_solved_in_300_000_interactions(env_id, least, seed, tmp_path):
    config = for_environment(env_id)
    assert config.interactions == 300_000
    result = train(config, seed, tmp_path / "run", how=How(tensorboard=False))
    assert result["score"] >= least


@pytest.mark.parametrize("algorithm", ["dna", "ppo", "ppg"])
def test_minatar_breakout_reaches_five_in_400_000_interactions(algorithm, tmp_path):
    config = for_environment("MinAtar/Breakout-v1", algorithm)
    config = config.model_copy(update={"interactions": 409_600})
    result = train(config, 100, tmp_path / "run", how=How(tensorboard=False))
    assert result["score"] >= 5
