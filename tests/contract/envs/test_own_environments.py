"""Environments that are no benchmarks: Dicts, masks, hybrid actions, encoders of one's own."""

import copy
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from torch import nn

from dna.algorithm.rollout import Collector
from dna.common.errors import BadInput, EnvironmentFailure, NonFinite, Preempted
from dna.config.overrides import tweak
from dna.envs.spaces import PackedCodec, action_codec, uniform_rows
from dna.envs.specs import ActionSpec, ObservationSpec, legal, numbers
from dna.evaluation.evaluate import Playing, evaluate, load_policy
from dna.networks.distributions import Hybrid, mask_illegal
from dna.networks.encoders import register_encoder
from dna.networks.networks import Networks
from dna.runs.folder import RunFolder
from dna.runs.setup import How
from dna.runs.train import train
from helpers import Stopper, bytes_of, environment, tiny

HOW = How(tensorboard=False, threads=1)


class Masked(gymnasium.Env):
    """Five choices, of which two or three are legal; an illegal one raises."""

    def __init__(self, where="info", groups=(5,), empty_at=None):
        self.where, self.groups, self.empty_at = where, groups, empty_at
        single = len(groups) == 1
        self.action_space = (
            spaces.Discrete(groups[0]) if single else spaces.MultiDiscrete(groups)
        )
        box = spaces.Box(-1, 1, (4,), np.float32)
        self.observation_space = box
        if where == "obs":
            mask = spaces.MultiBinary(sum(groups))
            self.observation_space = spaces.Dict({"observation": box, "action_mask": mask})
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen()

    def _seen(self):
        self.mask = self.np_random.random(sum(self.groups)) < 0.5
        start = 0
        for size in self.groups:
            self.mask[start + int(self.np_random.integers(size))] = True
            start += size
        if self.empty_at is not None and self.t == self.empty_at:
            self.mask[:] = False
        obs = self.np_random.uniform(-1, 1, 4).astype(np.float32)
        if self.where == "obs":
            return {"observation": obs, "action_mask": self.mask.astype(np.int8)}, {}
        return obs, {"action_mask": self.mask.copy()}

    def step(self, action):
        chosen = np.atleast_1d(action) + np.concatenate([[0], np.cumsum(self.groups)[:-1]])
        if not self.mask[chosen.astype(int)].all():
            raise AssertionError(f"illegal action {action}")
        self.t += 1
        obs, info = self._seen()
        return obs, float(np.sum(chosen)), self.t >= 7, False, info


def cut_and_resume(config, make, folder):
    """Whether a run that is stopped after its first iteration equals one that is not."""
    train(config, 3, folder / "whole", how=HOW, source=make)
    with pytest.raises(Preempted):
        train(config, 3, folder / "cut", how=HOW, source=make, sinks=[Stopper(0)])
    train(config, 3, folder / "cut", how=HOW, source=make)
    names = ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors")
    assert bytes_of(folder / "whole", *names) == bytes_of(folder / "cut", *names)
    return RunFolder(folder / "cut").machine()["exact"]


def masked(where="info", groups=(5,), algorithm="dna", **changes):
    config = tiny(algorithm, None, **changes)
    return config, lambda: Masked(where, groups)


# ── masks ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["info", "obs"])
@pytest.mark.parametrize("groups", [(5,), (2, 3)])
@pytest.mark.parametrize("algorithm", ["dna", "ppo", "ppg"])
def test_masked_runs_never_choose_what_is_illegal(tmp_path, where, groups, algorithm):
    config, make = masked(where, groups, algorithm, warm_up={"low": 2, "high": 9})
    result = train(config, 0, tmp_path / "run", how=HOW, source=make)
    assert result["episodes"] > 10  # the environment itself would have raised
    policy = load_policy(tmp_path / "run" / "policy")
    for deterministic in (False, True):
        found = evaluate(
            policy,
            config.env,
            episodes=8,
            seed=1,
            deterministic=deterministic,
            how=Playing(source=make),
        )
        assert len(found.scores) == 8
    assert len(evaluate(None, config.env, episodes=4, seed=1, how=Playing(source=make)).scores)


def test_not_one_of_a_million_samples_is_illegal():
    config, make = masked()
    env = environment(config, make)
    networks = Networks(config, env.observation, env.action)
    rng = np.random.default_rng(0)
    rows, counts = [], 0
    obs = env.reset()
    for _ in range(25):
        rows.append(obs)
        obs = env.step(env.uniform(rng)).obs
    states = torch.from_numpy(np.concatenate(rows))
    with torch.no_grad():
        # Logits that would love the illegal choices.
        networks.policy.policy_head.weight.normal_(0, 30)
        pi = networks.pi(states).pi
    allowed = torch.from_numpy(legal(env.observation, states.numpy()))
    for _ in range(10_000):
        noise = torch.from_numpy(networks.distribution.draw(rng, (len(pi),)))
        action = networks.distribution.sample(pi, noise)
        assert bool(allowed.gather(1, action).all())
        counts += len(action)
    assert counts == 1_000_000
    assert not bool(allowed.all())


def test_probabilities_entropy_and_kl_are_over_legal_choices_only():
    distribution = ActionSpec("categorical", (4, 3))
    config = tiny("dna", None)
    part = PackedCodec(spaces.Box(-1, 1, (2,)), distribution, in_info=True)
    networks = Networks(config, part.spec, distribution)
    mask = np.array([1, 0, 1, 0, 0, 1, 1], bool)
    row = part.encode(np.array([0.3, -0.2], np.float32), {"action_mask": mask})
    with torch.no_grad():
        networks.policy.policy_head.weight.normal_(0, 1)
        pi = networks.pi(torch.from_numpy(row[None])).pi
        raw = networks.policy(networks.preprocess(torch.from_numpy(row[None]))).pi[0].double()
    other = pi + torch.randn(7) * torch.from_numpy(mask)

    def of(logits, group):
        """Probabilities of the legal choices of a group, by the definition."""
        index = [i for i in group if mask[i]]
        weights = torch.tensor([float(torch.exp(logits[i].double())) for i in index])
        return weights / weights.sum()

    groups = [range(4), range(4, 7)]
    entropy = -sum(float((of(raw, g) * of(raw, g).log()).sum()) for g in groups)
    assert float(networks.distribution.entropy(pi)) == pytest.approx(entropy, rel=1e-5)
    kl = sum(float((of(raw, g) * (of(raw, g) / of(other[0], g)).log()).sum()) for g in groups)
    assert float(networks.distribution.kl(pi, other)) == pytest.approx(kl, rel=1e-4)
    chosen = networks.distribution.log_prob(pi, torch.tensor([[2, 1]])).exp()[0]
    expected = [float(of(raw, groups[0])[1]), float(of(raw, groups[1])[0])]
    assert chosen.tolist() == pytest.approx(expected, rel=1e-5)
    illegal = networks.distribution.log_prob(pi, torch.tensor([[1, 0]])).exp()
    assert illegal.tolist() == [[0.0, 0.0]]


def test_gradients_through_masks_are_finite_and_nothing_reaches_illegal_logits():
    logits = torch.randn(6, 5, requires_grad=True)
    mask = torch.rand(6, 5) < 0.5
    mask[:, 2] = True
    pi = mask_illegal(logits, mask)
    distribution = Networks(
        tiny("ppo", None),
        ObservationSpec("vector", (1,), "float32"),
        ActionSpec("categorical", (5,)),
    ).distribution
    total = distribution.entropy(pi).sum() + distribution.kl(pi.detach(), pi).sum()
    (total + distribution.log_prob(pi, torch.full((6, 1), 2)).sum()).backward()
    assert bool(logits.grad.isfinite().all())
    assert bool((logits.grad[~mask] == 0).all())


def test_random_legal_actions_are_uniform():
    codec = action_codec(spaces.MultiDiscrete([3, 4]))
    mask = np.array([[1, 0, 1, 0, 1, 1, 1]], bool).repeat(30_000, axis=0)
    rows = uniform_rows(codec, np.random.default_rng(1), mask, agents=len(mask))
    first = np.bincount(rows[:, 0], minlength=3) / len(rows)
    second = np.bincount(rows[:, 1], minlength=4) / len(rows)
    assert first == pytest.approx([0.5, 0, 0.5], abs=0.02)
    assert second == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3], abs=0.02)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("where", ["info", "obs"])
def test_masks_of_vector_environments_in_every_autoreset_mode(tmp_path, mode, where):
    config, make = masked(where, warm_up={"low": 2, "high": 9})
    vector = SyncVectorEnv([make] * config.agents, autoreset_mode=mode)
    assert train(config, 0, tmp_path / "run", how=HOW, source=vector)["episodes"] > 10


def test_a_mask_that_leaves_nothing_is_named(tmp_path):
    config = tiny("dna", None)
    with pytest.raises(EnvironmentFailure, match="action_mask leaves no legal choice"):
        train(config, 0, tmp_path / "run", how=HOW, source=lambda: Masked(empty_at=3))


class Late(Masked):
    """Says nothing at a reset of what is legal, but after every step."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {}

    def step(self, action):
        self.mask[:] = True  # what counts is that the run ends before it ignores anything
        return super().step(action)


class LateDict(Late):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict({"seen": self.observation_space})

    def _seen(self):
        obs, info = super()._seen()
        return {"seen": obs}, info


@pytest.mark.parametrize("make", [Late, LateDict])
@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_a_mask_that_comes_late_is_not_ignored(tmp_path, make, mode):
    config = tiny("dna", None)
    source = make
    if mode is not None:
        source = SyncVectorEnv([make] * config.agents, autoreset_mode=mode)
    words = "had none at the first reset; give it at every reset and step"
    with pytest.raises(EnvironmentFailure, match=words) as caught:
        train(config, 0, tmp_path / "run", how=HOW, source=source)
    assert "\n" not in str(caught.value)


def test_reals_have_no_masks_to_come_late(tmp_path):
    class Reals(Late):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, action):
            obs, info = self._seen()
            self.t += 1
            return obs, float(action[0]), self.t >= 7, False, info

    assert train(tiny("dna", None), 0, tmp_path / "run", how=HOW, source=Reals)["episodes"]


class Asked(Masked):
    """As sb3-contrib has it: a method tells what is legal, and `info` nothing."""

    def reset(self, *, seed=None, options=None):
        self.over = False
        return super().reset(seed=seed)[0], {}

    def step(self, action):
        obs, reward, self.over, truncated, _ = super().step(action)
        return obs, reward, self.over, truncated, {}

    def action_masks(self):
        assert not self.over, "nobody acts here any more"
        return self.mask.copy()


@pytest.mark.parametrize("groups", [(5,), (3, 4)])
def test_a_method_tells_what_is_legal(tmp_path, groups):
    """Behind wrappers too; with the same masks the run is that of `info`, to the byte."""
    config = tiny("dna", None, warm_up={"low": 2, "high": 9})
    sources = {
        "info": lambda: Masked(groups=groups),
        "method": lambda: Asked(groups=groups),
        "wrapped": lambda: gymnasium.wrappers.TimeLimit(Asked(groups=groups), 100),
    }
    for name, source in sources.items():
        train(config, 0, tmp_path / name, how=HOW, source=source)
    names = ("metrics.jsonl", "episodes.csv", "policy/policy.safetensors")
    found = [bytes_of(tmp_path / name, *names) for name in sources]
    assert found[0] == found[1] == found[2]
    policy = load_policy(tmp_path / "method" / "policy")
    assert policy.preprocess.spec.masked
    playing = Playing(source=sources["method"])
    assert len(evaluate(policy, config.env, episodes=5, seed=1, how=playing).scores) == 5


def test_a_run_with_a_method_resumes_to_the_bit(tmp_path):
    assert cut_and_resume(tiny("dna", None), Asked, tmp_path)


def test_what_is_seen_comes_before_what_is_asked(tmp_path):
    class Both(Masked):
        def action_masks(self):
            raise AssertionError("the observation has it")

    config = tiny("dna", None)
    assert train(config, 0, tmp_path / "run", how=HOW, source=lambda: Both("obs"))["episodes"]


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_a_vector_environment_whose_masks_must_be_asked_for_is_refused(tmp_path, kind):
    vector = kind([Asked] * 4)
    try:
        with pytest.raises(BadInput, match=r"action_masks\(\) works with single"):
            train(tiny("dna", None), 0, tmp_path / "run", how=HOW, source=vector)
    finally:
        vector.close()


def test_a_masked_run_resumes_to_the_bit(tmp_path):
    config, make = masked("info", warm_up={"low": 2, "high": 9})
    assert cut_and_resume(config, make, tmp_path)


def test_taxi_is_masked_by_its_own_info():
    env = environment(tiny("dna", "Taxi-v4"))
    assert env.observation.masked
    rng = np.random.default_rng(0)
    obs = env.reset()
    for _ in range(50):
        allowed, action = legal(env.observation, obs), env.uniform(rng)
        assert allowed[np.arange(len(action)), action[:, 0]].all()
        obs = env.step(action).obs


# ── Dict observations ─────────────────────────────────────────────────────────────────────


class Robot(gymnasium.Env):
    """A camera, a body and a gripper; the action moves and grips."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (12, 12, 3), np.uint8),
            "body": spaces.Dict(
                {"joints": spaces.Box(-5, 5, (3,), np.float64), "gear": spaces.Discrete(4)}
            ),
            "touch": spaces.MultiBinary(2),
        }
    )
    action_space = spaces.Dict(
        {"move": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(3, start=1)}
    )

    def __init__(self, bad=False):
        self.bad, self.t = bad, 0
        self.observation_space = copy.deepcopy(Robot.observation_space)  # draws by itself

    def _seen(self):
        obs = self.observation_space.sample()
        if self.bad and self.t == 4:
            obs["body"]["joints"][1] = np.inf
        return obs

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self._seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        reward = float(action["grip"] == 2) - float(np.abs(action["move"]).sum())
        return self._seen(), reward, self.t >= 8, False, {}


def test_packed_rows_hold_every_entry_exactly():
    codec = PackedCodec(Robot.observation_space, ActionSpec("gaussian", (1,)), in_info=False)
    names = [(p.name, p.kind, p.dtype) for p in codec.spec.parts]
    assert names == [
        ("body/gear", "vector", "float32"),
        ("body/joints", "vector", "float32"),
        ("touch", "vector", "float32"),
        ("camera", "image", "uint8"),
    ]
    assert codec.spec == ObservationSpec.from_json(codec.spec.to_json())
    assert codec.spec.shape[0] % 8 == 0
    space = spaces.Dict(Robot.observation_space.spaces)
    space.seed(3)
    for _ in range(20):
        obs = space.sample()
        found = numbers(codec.spec, codec.encode(obs)[None])[0]
        wanted = [
            np.eye(4)[obs["body"]["gear"]],
            obs["body"]["joints"].astype(np.float32),
            obs["touch"],
            obs["camera"].reshape(-1),
        ]
        assert np.array_equal(found, np.concatenate(wanted).astype(np.float32))


@pytest.mark.parametrize("algorithm", ["dna", "ppo", "ppg"])
def test_dict_observations_and_hybrid_actions_train(tmp_path, algorithm):
    config = tiny(algorithm, None, warm_up={"low": 2, "high": 9})
    train(config, 0, tmp_path / "run", how=HOW, source=Robot)
    policy = load_policy(tmp_path / "run" / "policy")
    found = evaluate(policy, config.env, episodes=4, seed=1, how=Playing(source=Robot))
    assert all(np.isfinite(found.scores))


def test_dict_statistics_are_those_of_each_element():
    config = tiny("dna", None)
    env = environment(config, Robot)
    networks = Networks(config, env.observation, env.action)
    collector = Collector(env, networks, config, 0)
    rows = []
    for _ in range(30):
        rows.append(collector.obs.copy())
        networks.observe(collector.obs)
        step = env.step(env.uniform(np.random.default_rng(0)))
        collector.obs = step.obs
    raw = numbers(env.observation, np.concatenate(rows)).astype(np.float64)
    raw[:, 9:] /= 255  # the camera comes last
    x = networks.preprocess(torch.from_numpy(rows[-1])).numpy()
    wanted = (raw[-len(x) :] - raw.mean(0)) / (raw.std(0) + 1e-5)
    assert x == pytest.approx(np.clip(wanted, -3, 3), abs=2e-4)


def test_not_finite_inside_a_dict_is_found(tmp_path):
    with pytest.raises(NonFinite, match="observation that is not finite"):
        train(tiny("dna", None), 0, tmp_path / "run", how=HOW, source=lambda: Robot(bad=True))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_dict_vector_environments_train(tmp_path, mode):
    config = tiny("dna", None)
    vector = SyncVectorEnv([Robot] * config.agents, autoreset_mode=mode)
    assert train(config, 0, tmp_path / "run", how=HOW, source=vector)["episodes"] > 10


def test_a_dict_run_resumes_to_the_bit(tmp_path):
    assert cut_and_resume(tiny("dna", None), Robot, tmp_path)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Tuple([spaces.Discrete(2)]), "Tuple is not supported"),
        (spaces.Dict({"a": spaces.Text(3)}), "'a': observation space Text"),
        (spaces.Dict({"action_mask": spaces.MultiBinary(5)}), "has nothing to see"),
        (
            spaces.Dict({"x": spaces.Discrete(2), "action_mask": spaces.MultiBinary(4)}),
            "'action_mask' has 4 entries",
        ),
    ],
)
def test_spaces_that_cannot_be_read_are_one_line(space, words, tmp_path):
    class Odd(Masked):
        def __init__(self):
            super().__init__()
            self.observation_space = space

        def _seen(self):
            return super()._seen()[0], {}

    with pytest.raises((BadInput, EnvironmentFailure), match=words):
        train(tiny("dna", None), 0, tmp_path / "run", how=HOW, source=Odd)


DOCUMENT = Path(__file__).parents[3] / "docs" / "own-environments.md"
ROWS = re.findall(r"^\| `(\w+\(.*\))` \| (.*?) \| (.*?) \|$", DOCUMENT.read_text(), re.M)


class Sampled(gymnasium.Env):
    """Shows samples of its observation space and checks that actions are in their space."""

    def __init__(self, seen, done):
        self.observation_space, self.action_space = copy.deepcopy((seen, done))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t >= 5, False, {}


@pytest.mark.parametrize(("text", "as_observation", "as_action"), ROWS)
def test_the_documented_spaces_train_or_are_refused(text, as_observation, as_action, tmp_path):
    names = {name: getattr(spaces, name) for name in spaces.__all__}
    space = eval(text, names | {"np": np})
    other = spaces.Box(-1, 1, (2,), np.float32)
    for said, pair in ((as_observation, (space, other)), (as_action, (other, space))):
        config = tiny("dna", None, interactions=64)
        folder = tmp_path / str(pair[0] is space)
        how = replace(HOW, compile="off")  # faster for one iteration
        start = partial(train, config, 0, folder, how=how, source=partial(Sampled, *pair))
        if not said.startswith("no"):
            assert start()["episodes"] > 5
            continue
        with pytest.raises(BadInput) as caught:
            start()
        assert len(str(caught.value)) <= 200
        for name in re.findall(r"`(\w+)`", said):
            assert name in str(caught.value)


def test_the_table_of_spaces_has_all_of_gymnasiums():
    kinds = {kind for text, *_ in ROWS for kind in re.findall(r"\w+(?=\()", text)}
    assert {name for name in spaces.__all__ if name[0].isupper()} - {
        "Space",
        "GraphInstance",
    } <= kinds


# ── hybrid actions ────────────────────────────────────────────────────────────────────────


def test_hybrid_is_the_product_of_its_two_halves():
    hybrid = Hybrid((3, 2), 2)
    generator = torch.Generator().manual_seed(0)
    old, new = torch.randn(2, 50, 9, generator=generator)
    categorical = [
        torch.distributions.Categorical(logits=old[:, :3]),
        torch.distributions.Categorical(logits=old[:, 3:5]),
    ]
    normal = torch.distributions.Normal(old[:, 5:7], old[:, 7:].exp())
    noise = torch.from_numpy(hybrid.draw(np.random.default_rng(0), (50,)))
    action = hybrid.sample(old, noise)
    wanted = torch.stack(
        [c.log_prob(action[:, i].long()) for i, c in enumerate(categorical)], dim=1
    )
    wanted = torch.cat([wanted, normal.log_prob(action[:, 2:])], dim=1)
    assert torch.allclose(hybrid.log_prob(old, action), wanted, atol=1e-5)
    entropy = sum(c.entropy() for c in categorical) + normal.entropy().sum(-1)
    assert torch.allclose(hybrid.entropy(old), entropy, atol=1e-5)
    others = [
        torch.distributions.Categorical(logits=new[:, :3]),
        torch.distributions.Categorical(logits=new[:, 3:5]),
    ]
    kl = sum(
        torch.distributions.kl_divergence(a, b)
        for a, b in zip(categorical, others, strict=True)
    )
    other = torch.distributions.Normal(new[:, 5:7], new[:, 7:].exp())
    kl = kl + torch.distributions.kl_divergence(normal, other).sum(-1)
    assert torch.allclose(hybrid.kl(old, new), kl, atol=1e-4)
    mode = hybrid.mode(old)
    assert torch.equal(mode[:, 0], old[:, :3].argmax(-1).float())
    assert torch.equal(mode[:, 2:], old[:, 5:7])


def test_dict_actions_decode_name_by_name():
    space = spaces.Dict(
        {
            "a": spaces.Box(-1, 1, (2,), np.float32),
            "b": spaces.Discrete(3, start=5),
            "c": spaces.Dict({"d": spaces.MultiBinary(2), "e": spaces.Box(0, 9, (1,))}),
        }
    )
    codec = action_codec(space)
    assert codec.spec == ActionSpec("hybrid", (3, 2, 2), 3)
    found = codec.decode(np.array([2, 1, 0, 0.5, -7, 4.5], np.float32))
    assert space.contains(found)
    assert found["b"] == 7
    assert found["a"].tolist() == [0.5, -1]
    assert found["c"]["d"].tolist() == [1, 0]
    assert found["c"]["e"].tolist() == [4.5]
    rows = codec.uniform(np.random.default_rng(0), 4)
    batch = codec.decode_batch(rows)
    assert batch["c"]["e"].shape == (4, 1)
    assert all(space.contains(codec.decode(row)) for row in rows)


@pytest.mark.parametrize("constraint", ["logit_mse", "mean_mse"])
def test_constraints_of_one_kind_are_refused_for_hybrid_actions(tmp_path, constraint):
    config = tweak(tiny("dna", None), **{"distil.constraint": constraint})
    with pytest.raises(BadInput, match="is not for hybrid actions"):
        train(config, 0, tmp_path / "run", how=HOW, source=Robot)


# ── encoders from outside ─────────────────────────────────────────────────────────────────


class Look(nn.Module):
    """Reads the parts of `Robot`."""

    def __init__(self, spec):
        super().__init__()
        assert {part.name for part in spec.entries} >= {"camera", "touch"}
        self.see = nn.Conv2d(3, 4, 3, stride=3)
        self.feel = nn.Linear(3, 8)

    def forward(self, parts):
        seen = self.see(parts["camera"]).flatten(1)
        return torch.cat([seen, self.feel(parts["body/joints"])], dim=1).tanh()


def test_an_encoder_of_ones_own_reads_a_dict(tmp_path):
    config = tweak(tiny("dna", None), **{"network.encoder": register_encoder(Look)})
    train(config, 0, tmp_path / "run", how=HOW, source=Robot)
    policy = load_policy(tmp_path / "run" / "policy")
    assert policy.network.policy_head.in_features == 4 * 4 * 4 + 8


def test_a_module_is_copied_and_drawn_anew(tmp_path):
    module = nn.Sequential(nn.Linear(4, 32), nn.ELU())
    name = register_encoder(module, "tower")
    config = tweak(tiny("dna", "CartPole-v1"), **{"network.encoder": name})
    env = environment(config)
    torch.manual_seed(0)
    networks = Networks(config, env.observation, env.action)
    first = networks.policy.encoder[0].weight
    assert networks.value is not None
    assert not torch.equal(first, networks.value.encoder[0].weight)
    assert not torch.equal(first, module[0].weight)
    results = [train(config, 5, tmp_path / n, how=HOW) for n in "ab"]
    assert results[0]["score"] == results[1]["score"]
    names = ("metrics.jsonl", "policy/policy.safetensors")
    assert bytes_of(tmp_path / "a", *names) == bytes_of(tmp_path / "b", *names)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Linear(7, 3), "the custom encoder fails on"),
        (nn.Flatten(0), r"returns \(8,\) for two states"),
    ],
)
def test_encoders_that_do_not_fit_are_one_line(tmp_path, module, words):
    name = register_encoder(module, "odd")
    config = tweak(tiny("dna", "CartPole-v1"), **{"network.encoder": name})
    with pytest.raises(BadInput, match=words):
        train(config, 0, tmp_path / "run", how=HOW)


def test_an_unknown_encoder_is_one_line(tmp_path):
    config = tweak(tiny("dna", "CartPole-v1"), **{"network.encoder": "custom:nobody"})
    with pytest.raises(BadInput, match="is not registered"):
        train(config, 0, tmp_path / "run", how=HOW)
