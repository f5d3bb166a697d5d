"""Weights of Stable-Baselines3's PPO as a policy of ours; nothing of the file is run.

The zip holds `policy.pth`, read by `archive`, and `data`, JSON in which whatever is not
a plain value is a pickle in base64: those are never decoded. SB3 keeps the activation there,
but prints it beside in words, which is enough.

| SB3 | here |
|---|---|
| `mlp_extractor.policy_net`, `action_net`, `log_std` | the policy's encoder, its head, log σ |
| `mlp_extractor.value_net`, `value_net` | the value network, where the shapes allow |
| `features_extractor.cnn` (CnnPolicy), `value_net` | encoder of both heads: V_π is SB3's V |
"""

import re
from pathlib import Path
from typing import Any, Literal

from dna.common.errors import BadInput, StorageFailure
from dna.common.json_files import JSON_LIMIT, parse_json
from dna.common.storage import read
from dna.config import SGD, Atari, Config, EnvConfig, Joint, Network, Policy, Value
from dna.config.environments import ATARI
from dna.envs import Making, make
from dna.envs.guard import close
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.evaluation.sb3.archive import Archive, read_tensors
from dna.evaluation.sb3.layers import Array, Heads, fill, heads_of
from dna.evaluation.sb3.program import MOST_BYTES
from dna.networks.networks import Networks
from dna.runs.policy import save_policy

#: Bytes of a whole model: policy and optimizer, and what SB3 keeps beside.
MOST_MODEL = 2 * MOST_BYTES


def import_model(
    path: Path, env_id: str, out: Path, *, allow_import: bool = False
) -> list[str]:
    """Write the policy into `out`/policy; returns what there is to say."""
    if out.exists() or out.is_symlink():
        raise BadInput(f"--out {out}: is there already; choose a new folder")
    about, tensors = read_model(path)
    heads = heads_of(tensors, str(path))
    env = _environment(env_id)
    obs, action = _specs(env, allow_import)
    _check(obs, action, heads)
    network = _network(heads, _activation(about, heads.kind))
    two = not heads.shared and _alike(heads)
    networks = Networks(_config(env, network, two), obs, action)
    fill(networks, heads, obs, action)
    known: dict[str, Any] = {"algorithm": "ppo", "imported_from": "stable-baselines3"}
    if isinstance(about.get("num_timesteps"), int):
        known["interactions"] = about["num_timesteps"]
    save_policy(out / "policy", networks, _config(env, network, two), known)
    said = [f"{out}: policy of {path.name} for {env_id}"]
    if not heads.shared:
        said.append(
            "SB3's value has layers of its own: V_π of this policy is 0, which acting ignores"
        )
    return said


def read_model(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """(plain settings, tensors) of SB3's file."""
    data = read(path, MOST_MODEL)
    if data[:1] == b"\x80":
        raise BadInput(
            f"{path}: is a pickle, as of VecNormalize, which could run any code when read; "
            "only a model's zip is taken"
        )
    archive = Archive(data, str(path))
    if not {"policy.pth", "data"} <= set(archive.members):
        raise StorageFailure(f"{path}: not a model of Stable-Baselines3 (no policy.pth, data)")
    about = parse_json(archive.read("data", JSON_LIMIT), path)
    if not isinstance(about, dict):
        raise StorageFailure(f"{path}: its data is not SB3's")
    if about.get("use_sde"):
        raise BadInput(f"{path}: explores with gSDE, which there is none of here")
    weights = archive.read("policy.pth", MOST_BYTES)
    return about, read_tensors(weights, f"{path}: policy.pth")


def _environment(env_id: str) -> EnvConfig:
    """SB3's Atari wrapper as far as we have it; FireResetEnv there is none of."""
    if not env_id.startswith(ATARI):
        return EnvConfig(id=env_id)
    plain = Atari(sticky=0.0, actions="minimal", time="hidden", last_action="hidden")
    return EnvConfig(id=env_id, atari=plain)


def _specs(env: EnvConfig, allow_import: bool) -> tuple[ObservationSpec, ActionSpec]:
    vector = make(env, Making(1, (0,), 1, allow_import))
    try:
        return vector.observation, vector.action
    finally:
        close(vector)


def _check(obs: ObservationSpec, action: ActionSpec, heads: Heads) -> None:
    """Refuse what would act otherwise than SB3 does."""
    image = heads.kind == "nature"
    if obs.kind != ("image" if image else "vector") or (obs.dtype == "uint8") != image:
        policy = "CnnPolicy" if image else "MlpPolicy"
        raise BadInput(f"{policy} does not read {obs.kind} of {obs.dtype} as here; not taken")
    if action.kind == "hybrid":
        raise BadInput("SB3's PPO has no hybrid actions; is this the environment?")
    if (heads.log_std is None) != (action.kind == "categorical"):
        raise BadInput("the model's actions are not of the environment's kind")
    widths = {len(bias) for _, bias in heads.policy}
    if heads.kind == "mlp" and len(widths) != 1:
        shape = [len(bias) for _, bias in heads.policy]
        raise BadInput(f"network: net_arch {shape} has no one width, which mlp needs")


def _activation(about: dict[str, Any], kind: str) -> Literal["tanh", "relu"]:
    kwargs = about.get("policy_kwargs")
    kwargs = kwargs if isinstance(kwargs, dict) else {}
    if str(kwargs.get("normalize_images", "True")) != "True":
        raise BadInput("network: normalize_images=False is not known here")
    name = re.sub(r".*\.(\w+)'>", r"\1", str(kwargs.get("activation_fn", "Tanh")))
    if kind == "mlp" and name not in ("Tanh", "ReLU"):
        raise BadInput(f"network: the activation {name[:40]!r} is neither Tanh nor ReLU")
    return "relu" if name == "ReLU" else "tanh"


def _network(heads: Heads, activation: Literal["tanh", "relu"]) -> Network:
    width = len(heads.policy[-1][1])
    if heads.kind == "nature":
        return Network(encoder="nature", width=width)
    return Network(encoder="mlp", width=width, depth=len(heads.policy), activation=activation)


def _config(env: EnvConfig, network: Network, two: bool) -> Config:
    sgd = SGD(epochs=1, minibatch=128)
    phases = (Policy(sgd=sgd), Value(sgd=sgd)) if two else (Joint(sgd=sgd),)
    return Config(env=env, phases=phases, network=network, normalize_observation=None)


def _alike(heads: Heads) -> bool:
    return [w.shape for w, _ in heads.policy] == [w.shape for w, _ in heads.value]
