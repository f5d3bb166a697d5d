"""Self-contained policies: weights, normalizer and preprocessing in two files, no pickle.

`policy.safetensors` and `policy.json` suffice to act, without the run's configuration or other
statistics. With two networks the value network is included (format 2), so that videos can
show V_V beside V_π.
"""

import json
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

from dna.common.errors import StorageFailure
from dna.common.messages import one_line, shown
from dna.common.storage import parse_json, read_folder, read_manifest, write_folder
from dna.common.tensor_files import tensor_bytes, tensors_from, under
from dna.config import Config, EnvConfig, Network
from dna.config.phases import Positive
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.distributions import Distribution, distribution
from dna.networks.networks import Networks, PolicyNetwork, ValueNetwork
from dna.networks.normalizers import Preprocess, Unpack, preprocessing

FORMAT = 2
#: Formats that can be read; format 1 had no value network.
READABLE = (1, FORMAT)
#: Bytes of a file: policies may come from anyone, and are read whole.
FILE_LIMIT = 2**30
#: The files of a policy.
FILES = ("policy.json", "policy.safetensors")


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


class _Description(BaseModel, strict=True):
    """The content of `policy.json`, checked: it may come from anyone."""

    format: int
    network: Network
    clip: Positive | None
    gain: Positive
    projection: bool
    value: bool = False  # format 1 had no value network
    observation: dict[str, Any]
    action: dict[str, Any]
    env: EnvConfig
    about: dict[str, Any]


def load_policy(folder: Path) -> SavedPolicy:
    """Read and verify a policy folder."""
    files = read_policy(folder)
    path = folder / "policy.json"
    tree = parse_json(files["policy.json"], path)
    found = tree.get("format") if isinstance(tree, dict) else None
    if found not in READABLE:
        raise StorageFailure(f"{folder}: policy format {found!r:.40} is not {FORMAT}")
    tensors = tensors_from(files["policy.safetensors"], str(folder))
    try:
        described = _Description.model_validate_json(json.dumps(tree))
        policy = _build(described, tensors)
    except ValidationError as error:
        raise StorageFailure(f"{path}: {one_line(error, tree)}") from error
    except (ValueError, RuntimeError) as error:
        reason = shown(str(error).partition("\n")[0], 100)
        raise StorageFailure(f"{folder}: not a policy of this version ({reason})") from error
    for part in (policy.network, policy.value):
        if part is not None:
            part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return policy


def _build(described: _Description, tensors: dict[str, Tensor]) -> SavedPolicy:
    """Build the described networks and load their weights, or raise ValueError."""
    obs = ObservationSpec.from_json(described.observation)
    action = ActionSpec.from_json(described.action)
    network: PolicyNetwork
    value: ValueNetwork | None = None
    # The meta device allocates nothing: an untrusted file may claim any size. Custom encoders
    # need the CPU.
    own = described.network.encoder.startswith("custom:")
    with nullcontext() if own else torch.device("meta"):
        network = PolicyNetwork(described.network, obs, action, described.projection)
        if described.value:
            value = ValueNetwork(described.network, obs, described.projection)
    parts = ["policy", "preprocess"] if value is None else ["policy", "value", "preprocess"]
    _check_tensors(tensors, parts)
    _fill(network, tensors, "policy")
    if value is not None:
        _fill(value, tensors, "value")
    # Its size follows from the observations, which by now are known to fit the weights.
    preprocess = preprocessing(obs, described.clip, described.gain)
    _fill(preprocess, tensors, "preprocess")
    pi = distribution(action)
    return SavedPolicy(preprocess, network, pi, described.env, described.about, action, value)


def read_policy(folder: Path) -> dict[str, bytes]:
    """Read the two files of a policy, checked; a folder with other files is refused."""
    listed = read_manifest(folder)["files"]
    if set(listed) != set(FILES):
        names = ", ".join(sorted(set(FILES) ^ set(listed)))
        raise StorageFailure(f"{folder}: not a policy: {shown(names, 60)} missing or unknown")
    return read_folder(folder, limit=FILE_LIMIT)


def _check_tensors(tensors: dict[str, Tensor], parts: Collection[str]) -> None:
    """Require floating-point numbers that belong to a part of the policy."""
    for name, tensor in tensors.items():
        if name.partition("/")[0] not in parts:
            raise ValueError(f"{shown(name, 60)} belongs to no part of it")
        if not tensor.is_floating_point():
            raise ValueError(f"{shown(name, 60)} is not of finite numbers")


def _fill(module: torch.nn.Module, tensors: dict[str, Tensor], part: str) -> None:
    """Load a module from the finite tensors of a part, with the module's names and shapes."""
    own = under(tensors, part)
    expected = module.state_dict()
    for name in sorted(expected.keys() ^ own.keys()):
        fault = "is missing" if name in expected else "belongs to no layer"
        raise ValueError(f"{shown(f'{part}/{name}', 60)} {fault}")
    for name, tensor in own.items():
        if tensor.shape != expected[name].shape:
            text = f"is {tuple(tensor.shape)}, not {tuple(expected[name].shape)}"
            raise ValueError(f"{part}/{name} {text}")
    weights = {name: tensor.float() for name, tensor in own.items()}
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):  # also a float64 that float32 cannot hold
            raise ValueError(f"{part}/{name} is not of finite numbers")
    module.load_state_dict(weights, assign=True)
