"""An ONNX file as a policy that our environments can be played with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dna.common.storage import read
from dna.evaluation.export.acting import inputs, spec_of
from dna.evaluation.export.conversion import Runtime
from dna.evaluation.export.trial import feeds
from dna.runs.policy import SavedPolicy

Array = npt.NDArray[Any]


class Player:
    """Reads the file alone; `like` says how our rows are laid out."""

    def __init__(self, path: Path, like: SavedPolicy) -> None:
        self.runtime = Runtime(read(path))
        self.contract: dict[str, Any] = json.loads(self.runtime.properties["contract"])
        self.obs, self.spec = like.preprocess.spec, spec_of(like.distribution)
        self.distribution = like.distribution

    def outputs(self, rows: Array) -> dict[str, Array]:
        """Everything it says of observations as our environments give them."""
        names = [entry["name"] for entry in self.contract["outputs"]]
        return self.runtime.run(feeds(self.obs, inputs(self.obs, names), rows))

    def parameters(self, obs: Tensor) -> Tensor:
        """π's parameters [B, P], as `evaluate` asks a policy for them."""
        out = self.outputs(obs.numpy())
        found = [out[n] for n in ("logits", "mean", "log_std") if n in out]
        return torch.from_numpy(np.concatenate(found, axis=1))

    def act(self, obs: Tensor, rng: np.random.Generator, *, deterministic: bool) -> Tensor:
        """Rows of actions [B, W]: its own most likely ones, or drawn from its parameters."""
        if deterministic:
            return self._rows(self.outputs(obs.numpy()), len(obs))
        noise = torch.from_numpy(self.distribution.draw(rng, (len(obs),)))
        return self.distribution.sample(self.parameters(obs), noise)

    def _rows(self, out: dict[str, Array], size: int) -> Tensor:
        """What `step` takes → our rows: offsets taken off again."""
        dtype = np.float32 if self.spec.numbers else np.int64
        rows: Array = np.zeros((size, self.spec.width), dtype)
        for entry in self.contract["outputs"]:
            if "columns" in entry:
                own = out[entry["name"]].reshape(size, -1) - np.asarray(entry.get("start", 0))
                rows[:, entry["columns"]] = own
        return torch.from_numpy(rows)
