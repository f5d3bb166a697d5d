"""Compare the scores of runs played by torch and by their exported ONNX files.

    python benchmarks/export.py runs/a runs/b --episodes 100
    python benchmarks/export.py runs/own --allow-import

Nothing is trained. Both play deterministically from the same seeds, so scores are equal unless
rounding flips a choice between two almost equally likely actions, or the simulator amplifies
differences in the last bits.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from dna.agents.hub import load
from dna.common.randomness import integer
from dna.envs import Making, make
from dna.envs.protocol import close
from dna.evaluation.evaluate import Playing, evaluate
from dna.evaluation.export.onnx_file import OnnxPolicy, environment_interface, to_onnx
from dna.runs.policy import SavedPolicy


def visited(policy: SavedPolicy, player: OnnxPolicy, steps: int, allow_import: bool) -> float:
    """Return the largest difference of π's parameters on states that torch's policy visits."""
    seeds = tuple(integer(0, "export", agent) for agent in range(4))
    vector = make(policy.env, Making(4, seeds, 1, allow_import))
    rng, worst = np.random.default_rng(0), 0.0
    try:
        obs = vector.reset()
        for _ in range(steps):
            rows = torch.from_numpy(obs)
            with torch.inference_mode():
                said = policy.network(policy.preprocess(rows), policy.preprocess.legal(rows))
            out = player.outputs(obs)
            found = [out[name] for name in ("logits", "mean", "log_std") if name in out]
            apart = np.abs(np.concatenate(found, axis=1) - said.pi.numpy()).max()
            worst = max(worst, float(apart))
            action = policy.act(rows, rng, deterministic=True)
            obs = vector.step(action.numpy()).obs
    finally:
        close(vector)
    return worst


def compare(run: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Play one run with torch and with ONNX."""
    episodes, allow = given.episodes, given.allow_import
    policy = load(run)
    file = to_onnx(policy, environment_interface(policy, allow_import=allow))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.onnx"
        file.write(path)
        player = OnnxPolicy(path, policy)
    played = {}
    for name, who in (("torch", policy), ("onnx", cast(SavedPolicy, player))):
        how = Playing(allow_import=allow)
        found = evaluate(
            who, policy.env, episodes=episodes, seed=0, deterministic=True, how=how
        )
        played[name] = np.array(found.scores)
    return {
        "environment": policy.env.id,
        "episodes": episodes,
        "torch": float(played["torch"].mean()),
        "onnx": float(played["onnx"].mean()),
        "largest_difference_of_a_score": float(np.abs(played["torch"] - played["onnx"]).max()),
        "random_observations": file.compared.difference,
        "visited_states": visited(policy, player, given.steps, allow),
        "bytes": len(file.data),
    }


def main() -> None:
    """Print one line of JSON per run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--allow-import", action="store_true")
    given = parser.parse_args()
    for run in given.runs:
        print(json.dumps(compare(run, given)), flush=True)


if __name__ == "__main__":
    main()
