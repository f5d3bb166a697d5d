"""A saved policy → an ONNX file, its contract, and how far it is from torch."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dna.common.errors import BadInput
from dna.common.storage import write, write_json
from dna.envs import Making, Source, make
from dna.envs.guard import close
from dna.envs.outside import Outside, outside
from dna.evaluation.export.acting import Acting, action_parts, inputs, output_names, spec_of
from dna.evaluation.export.contract import contract
from dna.evaluation.export.conversion import Runtime, check_installed, convert
from dna.evaluation.export.trial import Compared, Exported, compare, feeds, random_rows
from dna.runs.policy import SavedPolicy


@dataclass(frozen=True)
class File:
    """What is written: the file, what to feed it, how far it is from torch."""

    data: bytes
    contract: dict[str, Any]
    compared: Compared

    def write(self, path: Path) -> Path:
        """The file, and its contract beside it; returns where that is."""
        beside = path.with_suffix(".json")
        write(path, self.data)
        write_json(beside, self.contract)
        return beside


def surroundings(
    policy: SavedPolicy, *, allow_import: bool = False, source: Source = None
) -> Outside:
    """Make the policy's environment once, to see what lies around it."""
    if policy.env.id is None and source is None:
        raise BadInput(
            "export: the environment came from Python, where this cannot make it; add --no-env"
        )
    vector = make(policy.env, Making(1, (0,), 1, allow_import), source)
    try:
        if (vector.observation, vector.action) != (
            policy.preprocess.spec,
            spec_of(policy.distribution),
        ):
            raise BadInput(f"{policy.env.id}: looks different here than to the policy")
        return outside(vector)
    finally:
        close(vector)


def to_onnx(policy: SavedPolicy, known: Outside | None) -> File:
    """Convert and compare; None for `known` leaves actions as the network gives them."""
    check_installed()
    spec, obs = spec_of(policy.distribution), policy.preprocess.spec
    parts = action_parts(spec, known)
    outputs = output_names(spec, parts)
    given = inputs(obs, outputs)
    about = contract(policy, spec, given, parts, known)
    example = feeds(obs, given, random_rows(policy, spec, 3, 0))
    data = convert(
        Acting(policy, spec, parts),
        [torch.from_numpy(x) for x in example.values()],
        ([entry.name for entry in given], outputs),
        {"contract": json.dumps(about), "words": "\n".join(about["words"])},
    )
    compared = compare(policy, spec, parts, Exported(Runtime(data), given))
    return File(data, about, compared)
