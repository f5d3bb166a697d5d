"""Predict actions from observations, both in the environment's own spaces."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dna.common.errors import BadInput
from dna.config import Config
from dna.config.overrides import digest
from dna.envs import VectorEnv
from dna.envs.factory import is_batch
from dna.envs.spaces import Codec, Observer, PackedCodec, entry, row_of
from dna.envs.specs import MASK
from dna.networks.networks import Networks
from dna.runs import checkpoint
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy, load_policy
from dna.runs.setup import build_networks

Array = npt.NDArray[Any]


class Predictor:
    """A policy between the observation and the action codec of an environment."""

    def __init__(
        self, policy: SavedPolicy, observer: Observer, codec: Codec, rng: np.random.Generator
    ) -> None:
        self.policy = policy
        self.observer = observer
        self.codec = codec
        self.rng = rng
        self.needs_mask = isinstance(observer, PackedCodec) and observer.in_info

    def __call__(self, observation: Any, mask: Any, *, deterministic: bool) -> Any:
        """Return the action for one observation, or the actions for a batch."""
        self._check_mask(mask)
        try:
            batch = self._is_batch(observation)
            rows = self._rows(observation, mask) if batch else self._row(observation, mask)
        except (ValueError, LookupError, TypeError) as error:
            raise BadInput(f"predict: {error}") from error
        if not np.isfinite(self.observer.numbers(rows)).all():
            raise BadInput("predict: the observation contains a number that is not finite")
        tensor = self.policy.act(torch.from_numpy(rows), self.rng, deterministic=deterministic)
        actions = np.asarray(tensor.numpy())
        if batch:
            return self.codec.decode_batch(actions)
        return self.codec.decode(actions[0])

    def _check_mask(self, mask: Any) -> None:
        if self.needs_mask and mask is None:
            raise BadInput(
                "predict: this policy chooses among legal actions; pass "
                "action_mask=info['action_mask'], or env.action_masks() if it has that"
            )
        if mask is not None and not self.needs_mask:
            masked = self.observer.spec.masked
            reason = "takes the mask from the observation" if masked else "uses no mask"
            raise BadInput(f"predict: this policy {reason}; leave action_mask out")

    def _is_batch(self, observation: Any) -> bool:
        if isinstance(self.observer, PackedCodec):
            name, codec = next(iter(self.observer.codecs.items()))
            if self.observer.nested:
                observation = entry(observation, name)
            return is_batch(codec.space, observation)
        return is_batch(self.observer.space, observation)

    def _row(self, observation: Any, mask: Any) -> Array:
        row = self.observer.empty(1)
        row[0] = self.observer.encode(observation, {MASK: mask} if self.needs_mask else None)
        return np.asarray(row)

    def _rows(self, observations: Any, masks: Any) -> Array:
        size = len(_first(observations))
        if masks is not None:
            masks = row_by_row(masks, size, self.codec.spec.choices)
        rows = [
            self._row(row_of(observations, i), masks[i] if masks is not None else None)
            for i in range(size)
        ]
        return np.concatenate(rows)


def row_by_row(masks: Any, size: int, choices: tuple[int, ...]) -> Any:
    """Return masks with one entry per observation, from an array, a list or a tuple of groups.

    A tuple holds one [size, choices] array per group, as it does for one observation. With as
    many observations as groups a list could be meant either way, so only a tuple is accepted.
    """
    grouped = len(masks) == len(choices) and all(
        not isinstance(group, tuple) and np.shape(group) == (size, number)
        for group, number in zip(masks, choices, strict=True)
    )
    if grouped and isinstance(masks, tuple):
        return np.concatenate([np.asarray(group) for group in masks], axis=1)
    if grouped:
        raise BadInput(
            "predict: action_mask could be per group or per observation; pass one array "
            f"({size}, {sum(choices)}), or a tuple of groups"
        )
    if len(masks) != size:
        raise BadInput(f"predict: {size} observations, but {len(masks)} masks")
    return masks


def _first(observation: Any) -> Any:
    """Return any array of a batch."""
    while isinstance(observation, Mapping):
        observation = next(iter(observation.values()))
    return observation


def final_policy(run: RunFolder) -> SavedPolicy | None:
    """Return the policy of a finished run, or of a folder from the hub; else None."""
    alone = (run.policy / "manifest.json").is_file() and not checkpoint.names(run.path)
    final = run.exists and (run.done or alone)
    return load_policy(run.policy) if final else None


def policy_now(run: RunFolder, config: Config, seed: int, env: VectorEnv) -> SavedPolicy:
    """Return the policy of a run's newest checkpoint; without one, of the initial weights."""
    networks = build_networks(config, seed, env, torch.device("cpu"))
    if run.exists:
        restore = partial(checkpoint.restore_networks, networks=networks)
        checkpoint.latest(run.path, digest(config, seed), check=restore)
    return policy_from(networks, config)


def policy_from(networks: Networks, config: Config) -> SavedPolicy:
    """Return the policy of these networks, moved to the CPU."""
    networks = networks.cpu()
    return SavedPolicy(
        networks.preprocess,
        networks.policy,
        networks.distribution,
        config.env,
        {"algorithm": config.algorithm},
        networks.action,
    )
