"""Self-contained policies: weights, normalizer and preprocessing in two files, no pickle.

`policy.safetensors` and `policy.json` suffice to act, without the run's configuration or other
statistics. With two networks the value network is included (format 2), so that films can show
V_V beside V_π.
"""

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from dna.common.errors import StorageFailure
from dna.common.storage import parse_json, read_folder, write_folder
from dna.common.tensor_files import tensor_bytes, tensors_from
from dna.config import Config, EnvConfig, Network
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.distributions import Distribution, distribution
from dna.networks.networks import Networks, PolicyNetwork, ValueNetwork
from dna.networks.normalizers import Preprocess, Unpack, preprocessing

FORMAT = 2
#: Formats that can be read; format 1 had no value network.
READABLE = (1, FORMAT)
#: Bytes: policies may come from anyone, and are read whole.
FILE_LIMIT = 2**32


class Opinion(NamedTuple):
    """The output of a saved policy for a batch of states."""

    pi: Tensor  # [B, P] parameters of π
    value: Tensor  # [B] V_π
    other: Tensor | None  # [B] V_V; None: one network, or format 1


@dataclass(frozen=True)
class SavedPolicy:
    """π and the preprocessing of its observations."""

    preprocess: Preprocess | Unpack
    network: PolicyNetwork
    distribution: Distribution
    env: EnvConfig
    about: dict[str, Any]  # algorithm, seed, interactions, score
    action: ActionSpec
    value: ValueNetwork | None = None  # θ_V, where it was saved

    @torch.inference_mode()
    def act(self, obs: Tensor, rng: np.random.Generator, *, deterministic: bool) -> Tensor:
        """Return actions [B, W] for raw observations [B, …]."""
        pi = self.parameters(obs)
        if deterministic:
            return self.distribution.mode(pi)
        noise = torch.from_numpy(self.distribution.draw(rng, (len(obs),)))
        return self.distribution.sample(pi, noise)

    @torch.inference_mode()
    def parameters(self, obs: Tensor) -> Tensor:
        """Return the parameters of π [B, P] for raw observations."""
        pi: Tensor = self.network(self.preprocess(obs), self.preprocess.legal(obs)).pi
        return pi

    @torch.inference_mode()
    def opinion(self, obs: Tensor) -> Opinion:
        """Return the parameters of π, V_π and V_V for raw observations [B, …].

        Values are those of training: discounted, and of normalized rewards if the run
        normalized them.
        """
        x = self.preprocess(obs)
        output = self.network(x, self.preprocess.legal(obs))
        other = None if self.value is None else self.value(x)
        return Opinion(output.pi, output.value, other)


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
        "value": networks.value is not None,
        "observation": networks.obs.to_json(),
        "action": networks.action.to_json(),
        "env": config.env.model_dump(mode="json"),
        "about": about,
    }
    tensors = {f"policy/{k}": v for k, v in networks.policy.state_dict().items()}
    if networks.value is not None:
        tensors |= {f"value/{k}": v for k, v in networks.value.state_dict().items()}
    tensors |= {f"preprocess/{k}": v for k, v in networks.preprocess.state_dict().items()}
    files = {
        "policy.json": (json.dumps(description, indent=2) + "\n").encode(),
        "policy.safetensors": tensor_bytes(tensors),
    }
    write_folder(folder, files)


def load_policy(folder: Path) -> SavedPolicy:
    """Read and verify a policy folder."""
    files = read_folder(folder, limit=FILE_LIMIT)
    try:
        tree = parse_json(files["policy.json"], folder / "policy.json")
        if tree["format"] not in READABLE:
            raise StorageFailure(f"{folder}: policy format {tree['format']} is not {FORMAT}")
        settings = Network.model_validate_json(json.dumps(tree["network"]))
        obs = ObservationSpec.from_json(tree["observation"])
        action = ActionSpec.from_json(tree["action"])
        tensors = tensors_from(files["policy.safetensors"], str(folder))
        # The meta device allocates nothing: an untrusted file may claim any size. Custom
        # encoders need the CPU.
        own = settings.encoder.startswith("custom:")
        with nullcontext() if own else torch.device("meta"):
            network = PolicyNetwork(settings, obs, action, tree["projection"])
            value = None
            if tree["format"] > 1 and tree["value"]:
                value = ValueNetwork(settings, obs, tree["projection"])
            sketch = preprocessing(obs, tree["clip"], tree["gain"])
        _fill(sketch, tensors, "preprocess/")
        _fill(network, tensors, "policy/")
        if value is not None:
            _fill(value, tensors, "value/")
        preprocess = preprocessing(obs, tree["clip"], tree["gain"])
        _fill(preprocess, tensors, "preprocess/")
        env = EnvConfig.model_validate_json(json.dumps(tree["env"]))
    except (KeyError, TypeError, ValueError, RuntimeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise StorageFailure(f"{folder}: not a policy of this version ({reason})") from error
    for part in (network, value):
        if part is not None:
            part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    pi = distribution(action)
    return SavedPolicy(preprocess, network, pi, env, tree["about"], action, value)


def _fill(module: torch.nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    """Load a module from saved tensors; unknown names or other shapes are an error."""
    own = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
    module.load_state_dict({k: v.float() for k, v in own.items()}, assign=True)
