"""The worked example of docs/add-a-phase.md runs as it is printed."""

import re
from pathlib import Path

import torch

from dna.algorithm.engine import EagerStep, run_phase
from dna.common.randomness import generator
from dna.config import SGD
from dna.config.presets import preset
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.batch import Experience
from dna.networks.networks import FlatWeights, Networks

TEXT = (Path(__file__).parents[2] / "docs" / "add-a-phase.md").read_text()


def example():
    scope = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "docs/add-a-phase.md", "exec"), scope)
    return scope["Imitate"]


def test_the_example_makes_good_actions_more_likely_and_leaves_the_value_alone():
    phase = example()(sgd=SGD(epochs=8, minibatch=32, learning_rate=1e-2))
    torch.manual_seed(0)
    obs, action = ObservationSpec("vector", (3,), "float32"), ActionSpec("categorical", (2,))
    networks = Networks(preset("small.dna"), obs, action)
    rows = 64
    choices = torch.arange(rows).remainder(2)[:, None]
    batch = {
        "obs": torch.randn(rows, 3),
        "action": choices,
        "log_prob": torch.zeros(rows, 1),
        "advantage": choices[:, 0].float(),  # action 1 is the better one
        "v_targ": torch.zeros(rows),
        "weight": torch.ones(rows),
    }

    def likely():
        with torch.no_grad():
            return networks.pi(batch["obs"]).pi.softmax(-1)[:, 1].mean()

    before, value = likely(), [p.clone() for p in networks.weights("value")]
    step = EagerStep(phase, networks, FlatWeights(networks))
    data = Experience.of(batch)
    metrics = run_phase(phase, networks, step, data, generator(0, "test"), 0.0)
    assert likely() > before + 0.1
    assert "imitate/loss" in metrics
    torch.testing.assert_close(networks.weights("value"), value, rtol=0, atol=0)
