"""Acting with a policy in the environment's own terms: its observations in, its actions out."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dna.common.errors import BadInput
from dna.common.tensor_files import under
from dna.config import Config
from dna.config.overrides import digest
from dna.envs import VectorEnv
from dna.envs.actions import Codec
from dna.envs.instances import Observer, is_batch
from dna.envs.packing import PackedCodec, entry, row_of
from dna.envs.specs import MASK
from dna.networks.networks import Networks
from dna.runs import checkpoint
from dna.runs.folder import RunFolder
from dna.runs.policy import SavedPolicy, load_policy
from dna.runs.setup import build_networks

Array = npt.NDArray[Any]


class Predictor:
    """A policy between the codecs of an environment."""

    def __init__(
        self, policy: SavedPolicy, codecs: tuple[Observer, Codec], rng: np.random.Generator
    ) -> None:
        self.policy, self.rng = policy, rng
        self.reader, self.writer = codecs
        self.needs_mask = isinstance(self.reader, PackedCodec) and self.reader.in_info

    def __call__(self, observation: Any, mask: Any, *, deterministic: bool) -> Any:
        """The action for one observation, or those for a batch of them."""
        self._check_mask(mask)
        try:
            batch = self._is_batch(observation)
            read = self._rows if batch else self._row
            rows = read(observation, mask)
        except (ValueError, LookupError, TypeError) as error:
            raise BadInput(f"predict: {error}") from error
        if not np.isfinite(self.reader.numbers(rows)).all():
            raise BadInput("predict: the observation has a number that is not finite")
        found = self.policy.act(torch.from_numpy(rows), self.rng, deterministic=deterministic)
        actions = np.asarray(found.numpy())
        if batch:
            return self.writer.decode_batch(actions)
        return self.writer.decode(actions[0])

    def _check_mask(self, mask: Any) -> None:
        if self.needs_mask and mask is None:
            raise BadInput(
                "predict: this policy chooses among legal actions; pass "
                "action_mask=info['action_mask'], or env.action_masks() if it has that"
            )
        if mask is not None and not self.needs_mask:
            where = "takes the mask from the observation" if self._has_mask else "knows no mask"
            raise BadInput(f"predict: this policy {where}; leave action_mask out")

    @property
    def _has_mask(self) -> bool:
        return self.reader.spec.masked

    def _is_batch(self, observation: Any) -> bool:
        if isinstance(self.reader, PackedCodec):
            name, codec = next(iter(self.reader.codecs.items()))
            if self.reader.nested:
                observation = entry(observation, name)
            return is_batch(codec.space, observation)
        return is_batch(self.reader.space, observation)

    def _row(self, observation: Any, mask: Any) -> Array:
        row = self.reader.empty(1)
        row[0] = self.reader.encode(observation, {MASK: mask} if self.needs_mask else None)
        return np.asarray(row)

    def _rows(self, observations: Any, masks: Any) -> Array:
        size = len(_first(observations))
        if masks is not None:
            masks = row_by_row(masks, size, self.writer.spec.choices)
        rows = [
            self._row(row_of(observations, i), masks[i] if masks is not None else None)
            for i in range(size)
        ]
        return np.concatenate(rows)


def row_by_row(masks: Any, size: int, choices: tuple[int, ...]) -> Any:
    """A mask for each of so many observations, of an array, a list or a tuple of groups.

    A tuple is one of groups, [size, choices] each, as it is for one observation. With as many
    observations as groups the same shape could be meant the other way round; then only a
    tuple is taken.
    """
    grouped = len(masks) == len(choices) and all(
        not isinstance(group, tuple) and np.shape(group) == (size, number)
        for group, number in zip(masks, choices, strict=True)
    )
    if grouped and isinstance(masks, tuple):
        return np.concatenate([np.asarray(group) for group in masks], axis=1)
    if grouped:
        raise BadInput(
            "predict: action_mask may be of groups or of observations; pass one array "
            f"({size}, {sum(choices)}), or a tuple of groups"
        )
    if len(masks) != size:
        raise BadInput(f"predict: {size} observations, but {len(masks)} masks")
    return masks


def _first(observation: Any) -> Any:
    """Any array of a batch."""
    while isinstance(observation, Mapping):
        observation = next(iter(observation.values()))
    return observation


def final_policy(run: RunFolder) -> SavedPolicy | None:
    """The policy of a run that is over, or all that is left of one, as in a hub's folder."""
    alone = (run.policy / "manifest.json").is_file() and not checkpoint.names(run.path)
    final = run.exists and (run.done or alone)
    return load_policy(run.policy) if final else None


def policy_now(run: RunFolder, config: Config, seed: int, env: VectorEnv) -> SavedPolicy:
    """The policy of a run's newest checkpoint; without one, that of the first weights."""
    networks = build_networks(config, seed, env, torch.device("cpu"))
    named = digest(config, seed)
    saved = checkpoint.latest(run.path, named) if run.exists else None
    if saved is not None:
        networks.load_state_dict(under(saved.tensors, "networks"))
    return policy_from(networks, config)


def policy_from(networks: Networks, config: Config) -> SavedPolicy:
    """The policy of these networks."""
    networks = networks.cpu()
    preprocess, network = networks.preprocess, networks.policy
    about: dict[str, Any] = {"algorithm": config.algorithm}
    pi, action = networks.distribution, networks.action
    return SavedPolicy(preprocess, network, pi, config.env, about, action)
