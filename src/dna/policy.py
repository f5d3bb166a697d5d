"""A policy that leaves its run: weights, normalizer and preprocessing in two files, no pickle.

`policy.safetensors` and `policy.json` are enough to act: no configuration of the run, no
statistics beside, nothing to import.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from dna.config import Config, EnvConfig, Network
from dna.distributions import Distribution, distribution
from dna.errors import StorageFailure
from dna.networks import Networks, PolicyNetwork, Preprocess, preprocessing
from dna.spaces import ActionSpec, ObservationSpec
from dna.storage import read_folder, tensor_bytes, tensors_from, write_folder
from dna.unpack import Unpack

FORMAT = 1


@dataclass(frozen=True)
class SavedPolicy:
    """π and all it needs to read an observation."""

    preprocess: Preprocess | Unpack
    network: PolicyNetwork
    distribution: Distribution
    env: EnvConfig
    about: dict[str, Any]  # algorithm, seed, interactions, score
    action: ActionSpec

    @torch.inference_mode()
    def act(self, obs: Tensor, rng: np.random.Generator, *, deterministic: bool) -> Tensor:
        """Actions [B, W] for raw observations [B, …]."""
        pi = self.network(self.preprocess(obs), self.preprocess.legal(obs)).pi
        if deterministic:
            return self.distribution.mode(pi)
        noise = torch.from_numpy(self.distribution.draw(rng, (len(obs),)))
        return self.distribution.sample(pi, noise)


def save_policy(
    folder: Path, networks: Networks, config: Config, about: dict[str, Any]
) -> None:
    """Write the self-contained policy of a run."""
    description = {
        "format": FORMAT,
        "network": config.network.model_dump(mode="json"),
        "clip": networks.preprocess.clip,
        "gain": networks.preprocess.gain,
        "projection": networks.policy.projection is not None,
        "observation": networks.obs.to_json(),
        "action": networks.action.to_json(),
        "env": config.env.model_dump(mode="json"),
        "about": about,
    }
    tensors = {f"policy/{k}": v for k, v in networks.policy.state_dict().items()}
    tensors |= {f"preprocess/{k}": v for k, v in networks.preprocess.state_dict().items()}
    files = {
        "policy.json": (json.dumps(description, indent=2) + "\n").encode(),
        "policy.safetensors": tensor_bytes(tensors),
    }
    write_folder(folder, files)


def load_policy(folder: Path) -> SavedPolicy:
    """Read a policy folder back, verified."""
    files = read_folder(folder)
    try:
        tree = json.loads(files["policy.json"])
        if tree["format"] != FORMAT:
            raise StorageFailure(f"{folder}: policy format {tree['format']} is not {FORMAT}")
        obs = ObservationSpec.from_json(tree["observation"])
        action = ActionSpec.from_json(tree["action"])
        network = PolicyNetwork(
            Network.model_validate_json(json.dumps(tree["network"])),
            obs,
            action,
            tree["projection"],
        )
        preprocess = preprocessing(obs, tree["clip"], tree["gain"])
        env = EnvConfig.model_validate_json(json.dumps(tree["env"]))
        tensors = tensors_from(files["policy.safetensors"], str(folder))
        network.load_state_dict(_part(tensors, "policy/"))
        preprocess.load_state_dict(_part(tensors, "preprocess/"))
    except (KeyError, TypeError, ValueError, RuntimeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise StorageFailure(f"{folder}: not a policy of this version ({reason})") from error
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return SavedPolicy(preprocess, network, distribution(action), env, tree["about"], action)


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
