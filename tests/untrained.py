"""Run folders with a policy as it is before training: made in a moment, for any environment."""

from pathlib import Path

import torch

from dna.config import Config
from dna.envs import Making, make
from dna.networks.networks import Networks
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy, load_policy, save_policy
from helpers import tiny

#: Id → settings that make its episodes short and its network small.
SHORT = {
    "CartPole-v1": {},
    "MinAtar/Breakout-v1": {"network.encoder": "small"},
    "ALE/Pong-v5": {"env.atari": {"max_frames": 120}, "network.encoder": "nature"},
    "HalfCheetah-v5": {"env.max_episode_steps": 12},
    "procgen/bigfish": {"env.procgen": {}, "network.encoder": "small"},
}


def settings(env_id: str, algorithm: str = "dna") -> Config:
    return tiny(algorithm, env_id, **{"network.width": 16, **SHORT[env_id]})


def untrained(path: Path, config: Config, seed: int = 0, spread: float = 1.0) -> SavedPolicy:
    """Write config.json and policy/; `spread` multiplies the policy head's weights."""
    vector = make(config.env, Making(1, (0,)))
    torch.manual_seed(seed)
    networks = Networks(config, vector.observation, vector.action)
    vector.close()
    networks.policy.policy_head.weight.data *= spread
    RunFolder(path).begin(config, seed)
    about = {"algorithm": config.algorithm, "seed": seed, "score": None}
    save_policy(path / "policy", networks, config, about)
    return load_policy(path / "policy")
