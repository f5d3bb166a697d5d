"""Compiled steps do what eager ones do, and the same every time.

Compiling takes some ten seconds a phase, so phases are compiled with one step per call, but
for one that walks several.
"""

import json
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch._inductor.config  # reads CXX once: here, before a test changes it

from dna.algorithm.compiled_step import (
    MOST_STEPS,
    CompiledStep,
    _with_own_code,
    has_compiler,
    make_steps,
    pays,
    steps_per_call,
)
from dna.algorithm.engine import EagerStep, run_phase
from dna.config import SGD, Auxiliary, Config, Distil, Joint, Linear, Network, Policy, Value
from dna.config.presets import preset
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.batch import Experience
from dna.networks.networks import FlatWeights, Networks
from dna.runs.setup import How, Learner
from dna.runs.train import train
from helpers import tiny

OBS, NUMBERS = ObservationSpec("vector", (5,), "float32"), ActionSpec("gaussian", (2,))
ROWS = 32
STEPS = SGD(epochs=2, minibatch=8, learning_rate=Linear(start=1e-2), max_gradient_norm=0.5)
PHASES = {
    "policy": Policy(sgd=STEPS, entropy_bonus=Linear(start=0.1), epsilon=0.2),
    "value": Value(sgd=STEPS),
    "distil": Distil(sgd=STEPS, constraint="mean_mse"),
}
#: Compiled too, but not of the networks that `build` makes for the three.
OTHERS = {
    "joint": Joint(sgd=STEPS, entropy_bonus=0.01),
    "aux": Auxiliary(sgd=STEPS, every=1),
}
#: In one process: starting the compiler takes seconds, whatever it compiles.
pytestmark = pytest.mark.xdist_group("compile")
needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")


def build():
    config = Config(
        phases=tuple(PHASES.values()),
        horizon=ROWS,
        agents=1,
        network=Network(encoder="mlp", width=8, depth=1),
    )
    torch.manual_seed(0)
    networks = Networks(config, OBS, NUMBERS)
    networks.observe((3 + 2 * torch.randn(50, 5)).numpy())
    return config, networks


def data():
    rng = torch.Generator().manual_seed(1)
    columns = {
        "action": torch.randn(ROWS, 2, generator=rng),
        "log_prob": -torch.rand(ROWS, 2, generator=rng),
        "advantage": torch.randn(ROWS, generator=rng),
        "v_targ": torch.randn(ROWS, generator=rng),
        "weight": (torch.rand(ROWS, generator=rng) > 0.2).float(),
    }
    return Experience(3 + 2 * torch.randn(ROWS, 5, generator=rng), columns)


def walked(make, progresses=(0.25, 0.5)):
    """Metrics, weights and moments after two runs of a phase."""
    _, networks = build()
    phase, step = make(networks, FlatWeights(networks))
    seen = [
        run_phase(phase, networks, step, data(), np.random.default_rng(3), progress)
        for progress in progresses
    ]
    (moments,) = step.optimizer.state.values()
    return seen, torch.cat([p.detach().flatten() for p in networks.parameters()]), moments


@needs_compiler
@pytest.mark.parametrize(
    ("name", "steps"), [("policy", 2), ("value", 1), ("distil", 1), ("joint", 1), ("aux", 1)]
)
def test_a_compiled_step_equals_the_eager_one_and_itself(name, steps):
    phase = (PHASES | OTHERS)[name]
    eager = walked(lambda networks, weights: (phase, EagerStep(phase, networks, weights)))
    compiled = [
        walked(lambda networks, weights: (phase, CompiledStep(phase, networks, weights, steps)))
        for _ in range(2)
    ]
    for mine, yours in zip(compiled[0][0], eager[0], strict=True):
        assert mine == pytest.approx(yours, rel=1e-4, abs=1e-6)
    torch.testing.assert_close(compiled[0][1], eager[1], rtol=1e-4, atol=2e-6)
    for slot in ("step", "exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(compiled[0][2][slot], eager[2][slot], rtol=1e-3, atol=1e-7)
    assert compiled[0][0] == compiled[1][0], "to the bit"
    assert torch.equal(compiled[0][1], compiled[1][1])


@needs_compiler
def test_a_compiled_run_repeats_itself_and_says_what_was_compiled(monkeypatch, tmp_path):
    """Also with the two phases at the same time."""
    config = tiny("dna", "Pendulum-v1")
    config = config.model_copy(update={"phases": config.phases[:2]})
    groups = []
    together = Learner.together

    def noted(self, phases):
        found = together(self, phases)
        groups.append([[phase.name for phase in group] for group in found])
        return found

    monkeypatch.setattr(Learner, "together", noted)
    for threads, name in enumerate(("a", "b"), 1):
        how = How(compile="on", tensorboard=False, threads=threads)
        train(config, 0, tmp_path / name, how=how)
    assert groups[:2] == [[["policy"], ["value"]], [["policy", "value"]]]
    for file in ("metrics.jsonl", "policy/policy.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    machine = json.loads((tmp_path / "a/machine.json").read_text())
    assert machine["compiled"] == ["policy", "value"]
    timings = [json.loads(x) for x in (tmp_path / "a/timings.jsonl").read_text().splitlines()]
    assert timings[0]["time/compile"] > timings[0]["time/policy"]
    assert "time/compile" not in timings[1]


def test_without_a_compiler_one_line_is_said_and_the_run_goes_on(monkeypatch):
    phase = PHASES["value"]

    def fails(*args, **kwargs):
        raise RuntimeError("backend raised:\nno compiler\n\nlong story")

    def make(networks, weights):
        step = CompiledStep(phase, networks, weights, 2)
        step.on_demand = SimpleNamespace(aot_compile=fails)
        return phase, step

    with pytest.warns(
        RuntimeWarning, match=r"^value: compiling failed.*\(backend raised: no compiler\)$"
    ) as said:
        metrics, weights, moments = walked(make)
    assert len(said) == 1
    eager = walked(lambda networks, flat: (phase, EagerStep(phase, networks, flat)))
    for mine, yours in zip(metrics, eager[0], strict=True):
        assert mine == pytest.approx(yours, rel=1e-6)
    assert torch.equal(weights, eager[1])
    assert torch.equal(moments["exp_avg"], eager[2]["exp_avg"])


def test_a_run_says_what_was_not_compiled(tmp_path, monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError("no luck")

    monkeypatch.setattr(
        "dna.algorithm.compiled_step.torch.compile",
        lambda *args, **kwargs: SimpleNamespace(aot_compile=fails),
    )
    with pytest.warns(RuntimeWarning, match=r"joint: compiling failed.*no luck"):
        train(tiny("ppo"), 0, tmp_path, how=How(compile="on", tensorboard=False))
    assert json.loads((tmp_path / "machine.json").read_text())["compiled"] == []


def test_every_step_is_compiled_from_code_of_its_own():
    _, networks = build()
    weights = FlatWeights(networks)
    steps = [CompiledStep(PHASES["value"], networks, weights, 1) for _ in range(2)]
    methods = [_with_own_code(step._steps) for step in steps]
    assert methods[0].__code__ is not methods[1].__code__
    assert methods[0].__code__ == methods[1].__code__
    assert methods[0].__self__ is steps[0]


def test_calls_of_an_epoch_are_alike():
    assert [steps_per_call(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 32)] == [
        1,
        2,
        3,
        4,
        1,
        3,
        1,
        4,
        4,
    ]
    assert steps_per_call(2**20) == MOST_STEPS


def test_only_long_runs_of_small_networks_are_compiled():
    config, networks = build()
    config = config.model_copy(update={"interactions": 10**6})
    assert all(pays(config, phase, networks) for phase in config.phases)
    short = config.model_copy(update={"interactions": 10**4})
    assert not any(pays(short, phase, networks) for phase in short.phases)


def test_where_it_would_pay_a_missing_compiler_is_one_line(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    config, networks = build()
    config = config.model_copy(update={"interactions": 10**6})
    with pytest.warns(RuntimeWarning, match=r"^no C\+\+ compiler") as said:
        steps = make_steps(config, networks, FlatWeights(networks))
    assert len(said) == 1
    assert all(isinstance(step, EagerStep) for step in steps.values())
    short = config.model_copy(update={"interactions": 10**4})
    with warnings.catch_warnings(action="error"):
        make_steps(short, networks, FlatWeights(networks))


@pytest.mark.parametrize(("name", "expected"), [("mujoco.dna", True), ("cartpole.dna", False)])
def test_which_presets_are_compiled(name, expected):
    config = preset(name)
    action = NUMBERS if name == "mujoco.dna" else ActionSpec("categorical", (2,))
    networks = Networks(config, OBS, action)
    assert [pays(config, phase, networks) for phase in config.phases] == [expected] * 3


def test_a_joint_phase_with_statistics_of_a_mini_batch_is_not_cut_into_pieces():
    _, networks = build()
    phase = Joint(sgd=STEPS, normalize_advantage="minibatch")
    assert EagerStep(phase, networks, FlatWeights(networks), 2).piece == STEPS.minibatch
