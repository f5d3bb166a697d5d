"""SB3's names of weights: which layers π and V are made of, and our places for them."""

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from dna.common.errors import BadInput
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.networks import Networks

Array = npt.NDArray[Any]
Layers = list[tuple[Array, Array]]
_LAYER = re.compile(r"(.+)\.(\d{1,4})\.(weight|bias)")


@dataclass(frozen=True)
class Heads:
    """Everything in SB3's words: layers of π and V, and the heads behind them."""

    kind: Literal["mlp", "nature"]
    policy: Layers
    value: Layers
    shared: bool  # V reads the very features that π does
    action: tuple[Array, Array]
    critic: tuple[Array, Array]
    log_std: Array | None


def heads_of(tensors: dict[str, Array], source: str) -> Heads:
    """Sort SB3's names; one that is not known is refused."""
    rest = dict(tensors)
    groups: dict[str, dict[int, dict[str, Array]]] = {}
    for name in tensors:
        if match := _LAYER.fullmatch(name):
            layer = groups.setdefault(match[1], {}).setdefault(int(match[2]), {})
            layer[match[3]] = rest.pop(name)
    try:
        heads = _heads(groups, rest)
    except KeyError as error:
        raise BadInput(f"{source}: no PPO of MlpPolicy or CnnPolicy (no {error})") from None
    if rest or groups:
        odd = next(iter([*rest, *groups]))
        raise BadInput(f"{source}: {odd[:60]!r} is not of MlpPolicy or CnnPolicy")
    return heads


def _heads(groups: dict[str, Any], rest: dict[str, Array]) -> Heads:
    """Takes out of both what it knows."""
    action = rest.pop("action_net.weight"), rest.pop("action_net.bias")
    critic = rest.pop("value_net.weight"), rest.pop("value_net.bias")
    log_std = rest.pop("log_std", None)
    shared = _layers(groups.pop("mlp_extractor.shared_net", {}))  # SB3 before 1.8
    own = _layers(groups.pop("mlp_extractor.policy_net", {}))
    value = _layers(groups.pop("mlp_extractor.value_net", {}))
    seen = _extractors(groups)
    if seen is None:
        layers = shared + own, shared + value
        return Heads("mlp", *layers, not own and not value, action, critic, log_std)
    if shared or own or value:
        raise BadInput("network: layers between NatureCNN and the heads are not known here")
    same = all(
        np.array_equal(a, b)
        for one, two in zip(*seen, strict=True)
        for a, b in zip(one, two, strict=True)
    )
    return Heads("nature", *seen, same, action, critic, log_std)


def _extractors(groups: dict[str, Any]) -> tuple[Layers, Layers] | None:
    """NatureCNN of π and of V; SB3 lists a shared one three times."""
    found = {}
    for start in ("", "pi_", "vf_"):
        cnn = _layers(groups.pop(f"{start}features_extractor.cnn", {}))
        dense = _layers(groups.pop(f"{start}features_extractor.linear", {}))
        if cnn or dense:
            found[start] = cnn + dense
    if not found:
        return None
    both = found.get("pi_", found.get("", [])), found.get("vf_", found.get("", []))
    if any(len(layers) != 4 for layers in both):
        raise KeyError("NatureCNN")
    return both


def _layers(group: dict[int, dict[str, Array]]) -> Layers:
    return [(group[i]["weight"], group[i]["bias"]) for i in sorted(group)]


def fill(networks: Networks, heads: Heads, obs: ObservationSpec, action: ActionSpec) -> None:
    """SB3's numbers in our places; what does not fit says so."""
    weights = _encoder(heads.policy, heads.kind, obs)
    weights |= {"policy_head.weight": _logits(heads.action[0], action)}
    weights |= {"policy_head.bias": _logits(heads.action[1], action)}
    critic = heads.critic
    if not heads.shared:
        width = weights["policy_head.weight"].shape[1]
        critic = np.zeros((1, width), np.float32), np.zeros(1, np.float32)
    weights |= {"value_head.weight": critic[0], "value_head.bias": critic[1]}
    if heads.log_std is not None:
        weights["log_std"] = heads.log_std
    try:
        _load(networks.policy, weights)
        if networks.value is not None:
            own = _encoder(heads.value, heads.kind, obs)
            own |= {"value_head.weight": heads.critic[0], "value_head.bias": heads.critic[1]}
            _load(networks.value, own)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[-120:]
        raise BadInput(f"the model does not fit the environment ({reason})") from None


def _encoder(layers: Layers, kind: str, obs: ObservationSpec) -> dict[str, Array]:
    """Ours are numbered with their activations, a Flatten first (mlp) or fourth (nature)."""
    if kind == "mlp":
        pairs = {f"encoder.{1 + 2 * i}": pair for i, pair in enumerate(layers)}
    else:
        *convolutions, (weight, bias) = layers
        channels = len(convolutions[-1][1])
        side = obs.shape[0], obs.shape[1]
        for kernel, stride in ((8, 4), (4, 2), (3, 1)):
            side = (side[0] - kernel) // stride + 1, (side[1] - kernel) // stride + 1
        if weight.shape[1] != channels * side[0] * side[1]:
            raise BadInput(f"the model does not fit images of {obs.shape}")
        # SB3 flattens [C, H, W], we [H, W, C].
        columns = weight.reshape(len(weight), channels, *side).transpose(0, 2, 3, 1)
        pairs = {f"encoder.{2 * i}": pair for i, pair in enumerate(convolutions)}
        pairs["encoder.7"] = columns.reshape(len(weight), -1), bias
    named = {f"{name}.weight": weight for name, (weight, _) in pairs.items()}
    return named | {f"{name}.bias": bias for name, (_, bias) in pairs.items()}


def _logits(head: Array, action: ActionSpec) -> Array:
    """SB3 has one logit for a bit, we one for each of its values: that of 0 is 0."""
    bits = set(action.choices) == {2} and len(head) == len(action.choices)
    if not bits:
        return head
    both = np.zeros((2 * len(head), *head.shape[1:]), head.dtype)
    both[1::2] = head
    return both


def _load(module: torch.nn.Module, weights: dict[str, Array]) -> None:
    tensors = {n: torch.from_numpy(np.ascontiguousarray(w)).float() for n, w in weights.items()}
    module.load_state_dict(tensors)
