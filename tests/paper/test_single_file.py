"""examples/dna_single_file.py computes what the engine computes.

Both get the same rollouts, weights, observation statistics and mini-batch order, and may differ
by float32 rounding only: ATOL bounds the difference of every return, advantage and weight. Each
weight tensor moves by at least 1e-3.
"""

import ast
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dna.algorithm.engine import EagerStep, run_phase
from dna.algorithm.returns import estimate
from dna.common.timing import Clock
from dna.config.overrides import tweak
from dna.networks.networks import FlatWeights
from dna.networks.normalizers import RewardNormalizer
from helpers import collector, tiny

FILE = Path(__file__).parents[2] / "examples" / "dna_single_file.py"
ATOL = 2e-5
ITERATIONS = 2


def load():
    spec = importlib.util.spec_from_file_location("dna_single_file", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


single = load()
CONFIG = tweak(
    tiny("dna"),
    **{
        "env.max_episode_steps": 25,  # terminated and truncated episodes in every rollout
        "horizon": 64,
        "interactions": 512,
        "policy.epsilon": 0.05,  # small enough to clip
        "policy.entropy_bonus": 0.02,
        "policy.sgd.epochs": 3,
        "policy.sgd.minibatch": 64,
        # Small enough to clip, and large enough to tell KL(π_old, π) from KL(π, π_old).
        **{f"{name}.sgd.max_gradient_norm": 0.1 for name in ("policy", "value", "distil")},
        **{f"{name}.sgd.learning_rate": 1e-2 for name in ("policy", "value", "distil")},
        "value.sgd.minibatch": 32,
        "distil.beta": 0.7,
        "distil.sgd.minibatch": 32,
    },
)


def hyperparameters(config=CONFIG, **changes):
    """The configuration in the file's words."""
    policy, value, distil = config.phases
    settings = {
        "agents": config.agents,
        "horizon": config.horizon,
        "gamma": config.returns.gamma,
        "lambda_pi": config.returns.lambda_pi,
        "lambda_v": config.returns.lambda_v,
        "epsilon": policy.epsilon,
        "entropy_bonus": policy.entropy_bonus,
        "beta": distil.beta,
        "epochs_pi": policy.sgd.epochs,
        "epochs_v": value.sgd.epochs,
        "epochs_d": distil.sgd.epochs,
        "minibatch_pi": policy.sgd.minibatch,
        "minibatch_v": value.sgd.minibatch,
        "minibatch_d": distil.sgd.minibatch,
        "learning_rate": policy.sgd.learning_rate,
        "adam_eps": policy.sgd.adam_eps,
        "max_gradient_norm": policy.sgd.max_gradient_norm,
        "observation_clip": config.normalize_observation.clip,
        "reward_clip": config.normalize_reward.clip,
    }
    return single.Hyperparameters(**settings | changes)


def agent_like(networks, hp):
    """The file's agent with the weights of the engine's networks."""
    agent = single.Agent(networks.obs.shape[0], networks.action.sizes[0], hp)
    with torch.no_grad():
        for ours, theirs in pairs(agent, networks):
            ours.copy_(theirs)
    agent.set_learning_rate(hp.learning_rate)
    return agent


def pairs(agent, networks):
    """The file's and the engine's weights, side by side."""
    yield from zip(agent.policy.parameters(), networks.policy.parameters(), strict=True)
    yield from zip(agent.value.parameters(), networks.value.parameters(), strict=True)


def columns(rollout):
    """The engine's rollout in the form in which the file collects it."""
    horizon, agents = rollout.reward.shape
    states = rollout.obs.view(horizon + 1, agents, -1)
    next_obs = states[1:].clone()
    t, a = rollout.final_index.unbind(1)
    next_obs[t, a] = rollout.final_obs
    named = {
        "obs": states[:-1],
        "next_obs": next_obs,
        "action": rollout.action[..., 0],
        "log_prob": rollout.log_prob[..., 0],
        "reward": rollout.reward,
        "terminated": rollout.terminated,
        "done": rollout.done,
    }
    return {name: column.numpy() for name, column in named.items()}


def largest(pairs):
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def differences(**changes):
    """(iteration, what) → the largest difference between the file and the engine."""
    source = collector(CONFIG)
    networks, weights = source.networks, FlatWeights(source.networks)
    steps = {phase.name: EagerStep(phase, networks, weights) for phase in CONFIG.phases}
    agent = agent_like(networks, hyperparameters(**changes))
    before = [theirs.detach().clone() for _, theirs in pairs(agent, networks)]
    found = {}
    for iteration in range(ITERATIONS):
        rollout = source.collect(iteration, Clock())
        assert rollout.terminated.any()
        assert (rollout.done & ~rollout.terminated).any()
        experience, _ = estimate(rollout, networks, CONFIG.returns)
        moments = networks.normalizer.moments
        agent.moments.count, agent.moments.mean = moments.count, moments.mean
        agent.moments.m2 = moments.m2
        batch = single.estimate(agent, columns(rollout))
        for name in ("v_targ", "advantage"):
            found[iteration, name] = largest([(batch[name], experience[name])])
        for phase in CONFIG.phases:
            rng = np.random.default_rng([iteration, len(found)])
            agent.rng = np.random.default_rng([iteration, len(found)])
            run_phase(phase, networks, steps[phase.name], experience, rng, 0.0)
            getattr(single, f"{phase.name}_phase")(agent, batch)
            found[iteration, phase.name] = largest(pairs(agent, networks))
    after = [theirs for _, theirs in pairs(agent, networks)]
    assert min(largest([pair]) for pair in zip(before, after, strict=True)) > 1e-3
    return found


def test_returns_and_the_three_phases_are_those_of_the_engine():
    found = differences()
    names = ["v_targ", "advantage", "policy", "value", "distil"]
    assert list(found) == [(i, name) for i in range(ITERATIONS) for name in names]
    assert max(found.values()) < ATOL, found


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"gamma": 0.91}, "v_targ"),
        ({"lambda_v": 0.96}, "v_targ"),
        ({"lambda_pi": 0.81}, "advantage"),
        ({"epsilon": 0.06}, "policy"),
        ({"entropy_bonus": 0.03}, "policy"),
        ({"max_gradient_norm": 0.05}, "policy"),
        ({"adam_eps": 1e-4}, "policy"),
        ({"epochs_v": 1}, "value"),
        ({"minibatch_v": 64}, "value"),
        ({"beta": 0.8}, "distil"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_changed_setting_shows_where_it_acts_first(changes, first):
    found = differences(**changes)
    wrong = [name for (_, name), difference in found.items() if difference > 3 * ATOL]
    assert wrong[0] == first


def test_rewards_are_normalized_as_by_the_engine():
    hp = hyperparameters(agents=3)
    ours = single.Collector(hp)
    theirs = RewardNormalizer(3, hp.gamma, hp.reward_clip)
    rng = np.random.default_rng(0)
    for _ in range(50):
        reward = rng.normal(size=3).astype(np.float32)
        done = rng.random(3) < 0.2
        expected = theirs(reward, done, np.ones(3, np.bool_))
        np.testing.assert_allclose(ours.normalized_reward(reward, done), expected, rtol=1e-4)


def test_a_rollout_holds_true_successors_and_normalized_observations():
    """What `collect` records can be played again, and `next_obs` is never a reset's."""
    hp = hyperparameters(env_id="CartPole-v1", agents=2, horizon=40)
    source = single.Collector(hp)
    agent = single.Agent(4, 2, hp)
    rollout = source.collect(agent)
    going_on = ~rollout["done"][:-1]
    np.testing.assert_array_equal(
        rollout["next_obs"][:-1][going_on], rollout["obs"][1:][going_on]
    )
    ended = rollout["terminated"]
    assert ended.any()
    out = (abs(rollout["next_obs"][..., 0]) > 2.4) | (abs(rollout["next_obs"][..., 2]) > 0.209)
    np.testing.assert_array_equal(out, ended)  # CartPole's own rule, of true successors
    assert agent.moments.count == hp.agents * hp.horizon


def test_it_learns_and_prints(capsys):
    curve = single.train(single.Hyperparameters(interactions=10_240))
    assert curve[-1][0] == 10_240
    assert curve[-1][1] > 1.5 * curve[0][1]
    assert capsys.readouterr().out.count("score") == 2


def test_it_imports_nothing_of_the_package():
    nodes = ast.walk(ast.parse(FILE.read_text()))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {getattr(node, "module", None) or node.names[0].name for node in imports}
    roots = {module.split(".")[0] for module in modules}
    assert roots - set(sys.stdlib_module_names) == {"gymnasium", "numpy", "torch"}
