"""The Python API before anything is learned: arguments, settings, environments, laziness."""

import inspect
import subprocess
import sys
from typing import Literal

import gymnasium
import numpy as np
import pytest
import scipy.stats
import stable_baselines3
from gymnasium import spaces
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EvalCallback,
    ProgressBarCallback,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.utils import LinearSchedule

import dna
from dna.agents.notebook import card
from dna.common.errors import BadInput, UnknownKey
from dna.config import SGD, EnvConfig, json_tree
from dna.config.overrides import tweak
from dna.config.phases import Frozen, Name
from dna.config.presets import PRESETS, preset
from dna.envs.factory import KeptEnv, UserEnv, copies, is_batch
from dna.evaluation.evaluate import Evaluation
from dna.runs.callbacks import Callbacks
from helpers import tiny


def test_a_refused_setting_costs_no_torch():
    code = (
        "import sys, dna; agent = dna.DNA('CartPole-v1', agents=8); "
        "from dna.common.errors import UnknownKey\n"
        "try: dna.PPO('CartPole-v1', joint__sgd__epoch=1)\n"
        "except UnknownKey as error: assert 'epochs' in str(error)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("kind", [dna.DNA, dna.PPO, dna.PPG])
def test_the_preset_is_that_of_the_environment(kind):
    name = kind.algorithm
    for env in ("CartPole-v1", gymnasium.make("CartPole-v1")):
        found = json_tree(kind(env).config)
        wanted = json_tree(PRESETS[f"cartpole.{name}"])
        wanted["env"]["id"] = env if isinstance(env, str) else None
        assert found == wanted
    assert kind(lambda: gymnasium.make("CartPole-v1")).config == PRESETS[f"small.{name}"]


def test_overrides_in_each_spelling():
    dots = dna.DNA("CartPole-v1", **{"policy.sgd.epochs": 1, "horizon": 64})
    words = dna.DNA("CartPole-v1", policy__sgd__epochs=1, horizon=64)
    base = tweak(preset("cartpole.dna"), **{"env.id": "CartPole-v1"})
    assert dots.config == words.config == tweak(base, **{"policy.sgd.epochs": 1, "horizon": 64})
    phases = [base.phases[0], base.phases[1]]
    assert dna.Agent("CartPole-v1", phases=phases).config.algorithm == "policy+value"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"policy__sgd__epoch": 1}, "did you mean 'epochs'"),
        ({"n_steps": 64}, "did you mean 'horizon'"),
        ({"learning_rate": 1e-3}, "did you mean 'policy.sgd.learning_rate'"),
        ({"agents": 0}, "agents: given 0"),
        ({"policy__sgd__minibatch": 100}, "does not divide the batch"),
        ({"env__id": "Acrobot-v1"}, "is set by the first argument"),
        ({"preset": "cartpole.dno"}, "preset cartpole.dno: no such preset; did you mean"),
        ({"preset": "cartpole.ppo"}, "preset: cartpole.ppo is for PPO, not DNA"),
        ({"preset": "tuned.dna"}, "atari: is for ids that begin with ALE/"),
        ({"seed": -1}, "seed: given -1"),
        ({"encoder": "resnet"}, "network.encoder"),
    ],
)
def test_mistakes_are_one_line_at_once(arguments, words):
    with pytest.raises(BadInput, match=words) as caught:
        dna.DNA("CartPole-v1", **arguments)
    assert "\n" not in str(caught.value)


def test_two_spellings_of_one_key_are_refused():
    with pytest.raises(BadInput, match="given twice"):
        dna.DNA("CartPole-v1", **{"policy.sgd.epochs": 1, "policy__sgd__epochs": 2})


@pytest.mark.parametrize("env", [None, 3, object()])
def test_what_is_no_environment_is_refused(env):
    with pytest.raises(BadInput, match="env: "):
        dna.DNA(env)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"interactions": 10, "total_timesteps": 10}, "mean the same"),
        ({"interactions": 0}, "given 0"),
        ({"interactions": 10.5}, "given 10.5"),
        ({"interactions": True}, "given True"),
        ({"callback": 3}, "callback: int is not callable"),
    ],
)
def test_learn_refuses_at_once(arguments, words):
    with pytest.raises(BadInput, match=words):
        dna.DNA("CartPole-v1").learn(**arguments)


# ── what users of Stable-Baselines3 type ──────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [dna.DNA, dna.PPO, dna.PPG])
@pytest.mark.parametrize("name", list(inspect.signature(stable_baselines3.PPO).parameters))
def test_every_argument_of_sb3s_ppo_is_answered(kind, name):
    if name in ("env", "seed", "policy"):
        return  # ours too, or a phase; see below
    with pytest.raises(BadInput, match=rf"^{name}: no '{name}'; ") as caught:
        kind("CartPole-v1", **{name: 1})
    assert "\n" not in str(caught.value)
    assert "known: " not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        (dna.PPO, "learning_rate", "joint__sgd__learning_rate={'start': 1e-3, 'end': 0.0}"),
        (dna.DNA, "lr", "policy__sgd__learning_rate={'start': 1e-3, 'end': 0.0}"),
        (dna.PPG, "value__sgd__learning_rate", "value__sgd__learning_rate={'start': 1e-3"),
        (dna.PPO, "clip_range", "joint__epsilon={'start': 0.2, 'end': 0.0}"),
        (dna.DNA, "policy__epsilon", "policy__epsilon={'start': 0.2, 'end': 0.0}"),
        (dna.PPO, "ent_coef", "joint__entropy_bonus={'start': 0.01, 'end': 0.0}"),
        (dna.PPO, "gamma", "learning_rate, epsilon and entropy_bonus have schedules"),
    ],
)
@pytest.mark.parametrize("schedule", [lambda left: left * 1e-3, LinearSchedule(1e-3, 0.0, 1.0)])
def test_a_function_as_schedule_is_answered(kind, name, instead, schedule):
    with pytest.raises(BadInput) as caught:
        kind("CartPole-v1", **{name: schedule})
    line = str(caught.value)
    assert line.startswith(f"{name.replace('__', '.')}: a function is not a setting; ")
    assert instead in line
    assert "\n" not in line
    assert len(line) <= 200


@pytest.mark.parametrize("value", [np.float32(0.5), {1}, {"a": object()}])
def test_a_value_that_no_file_can_hold_is_named_by_its_type(value):
    inner = value["a"] if isinstance(value, dict) else value
    with pytest.raises(BadInput, match=rf"^returns\.gamma: given a {type(inner).__name__}, "):
        dna.PPO("CartPole-v1", returns__gamma=value)


@pytest.mark.parametrize(
    ("kind", "name", "instead"),
    [
        (dna.PPO, "vf_coef", "did you mean 'joint.value_weight'?"),
        (dna.PPO, "joint__vf_coef", "did you mean 'joint.value_weight'?"),
        (dna.PPO, "value__vf_coef", "did you mean 'joint.value_weight'?"),
        (dna.DNA, "vf_coef", "set value.sgd.learning_rate"),
        (dna.PPG, "policy__vf_coef", "set value.sgd.learning_rate"),
        (dna.PPO, "joint__lr", "did you mean 'joint.sgd.learning_rate'?"),
        (dna.DNA, "value__learning_rate", "did you mean 'value.sgd.learning_rate'?"),
        (dna.PPO, "policy__sgd__epochs", "did you mean 'joint.sgd.epochs'?"),
        (dna.PPO, "gama", "did you mean 'returns.gamma'?"),
        (dna.DNA, "epoch", "did you mean 'policy.sgd.epochs'?"),
    ],
)
def test_a_key_in_the_wrong_place_is_answered_with_its_path(kind, name, instead):
    with pytest.raises(UnknownKey) as caught:
        kind("CartPole-v1", **{name: 1})
    assert str(caught.value).endswith(f"; {instead}")


class OwnOfSb3(BaseCallback):
    def _on_step(self):
        return True


@pytest.mark.parametrize(
    ("callback", "words"),
    [
        (lambda: EvalCallback(gymnasium.make("CartPole-v1")), r"agent\.evaluate\(\)"),
        (lambda: CheckpointCallback(100, "nowhere"), r"dna\.How\(checkpoint_every="),
        (lambda: StopTrainingOnRewardThreshold(475), "on_iteration_end.* False when row.score"),
        (lambda: ProgressBarCallback(), "use progress="),
        (OwnOfSb3, r"on_iteration_end\(self, state, row\)"),
        (lambda: [OwnOfSb3()], r"on_iteration_end\(self, state, row\)"),
        (lambda: CallbackList([OwnOfSb3()]), "pass a list"),
        (lambda: EvalCallback, r"agent\.evaluate\(\)"),
    ],
)
def test_callbacks_of_sb3_are_answered(callback, words):
    with pytest.raises(
        BadInput, match=rf"^callback: \w+ is for Stable-Baselines3; .*{words}"
    ) as e:
        dna.PPO("CartPole-v1").learn(64, callback=callback())
    assert "\n" not in str(e.value)
    assert len(str(e.value)) <= 200


def test_a_class_as_callback_must_be_called():
    class Diary:
        def on_iteration_end(self, state, row): ...

    with pytest.raises(BadInput, match=r"^callback: Diary is a class; pass Diary\(\)"):
        dna.PPO("CartPole-v1").learn(64, callback=Diary)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("MlpPolicy", "CartPole-v1"), {}),
        (("CnnPolicy", gymnasium.make("CartPole-v1")), {"n_steps": 64}),
        ((stable_baselines3.ppo.MlpPolicy, "CartPole-v1"), {}),
        ((), {"policy": "MlpPolicy", "env": "CartPole-v1"}),
    ],
)
def test_a_policy_class_is_not_chosen_here(given, named):
    with pytest.raises(BadInput, match="there is no policy class to choose"):
        dna.PPO(*given, **named)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: a.learn(total_timesteps=64, progress_bar=True), "use progress="),
        (lambda a: a.learn(64, tb_log_name="x"), "name it with folder="),
        (lambda a: a.learn(64, reset_num_timesteps=False), r"learn\(\) continues"),
        (lambda a: a.learn(64, foo=1), "learn: no argument 'foo'$"),
        (lambda a: a.predict(np.zeros(4), action_masks=[1, 1]), "use action_mask="),
        (lambda a: dna.PPO.load("x", device="cpu"), r"load: no argument 'device'; .*dna\.How"),
    ],
)
def test_arguments_of_sb3s_methods_are_answered(call, words):
    with pytest.raises(BadInput, match=words) as caught:
        call(dna.PPO("CartPole-v1"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["get_env", "set_env", "policy", "logger", "device"])
def test_attributes_of_sb3s_models_are_answered(name):
    agent = dna.PPO("CartPole-v1")
    with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; "):
        getattr(agent, name)
    assert not hasattr(agent, name)
    with pytest.raises(AttributeError, match=r"^'PPO' object has no attribute 'foo'$"):
        agent.foo  # noqa: B018


def test_what_sb3s_models_say_of_themselves():
    agent = dna.PPO("CartPole-v1")
    assert agent.num_timesteps == 0
    assert agent.observation_space == gymnasium.make("CartPole-v1").observation_space
    assert agent.action_space == spaces.Discrete(2)
    vector = gymnasium.make_vec("CartPole-v1", 4)
    assert dna.PPO(vector).action_space == vector.single_action_space
    vector.close()


def test_nothing_can_be_saved_or_drawn_before_learning(tmp_path):
    agent = dna.DNA("CartPole-v1")
    assert (agent.history, agent.score, agent.interactions) == ([], None, 0)
    for act in (lambda: agent.save(tmp_path / "x"), agent.plot):
        with pytest.raises(BadInput, match="call learn first"):
            act()
    assert "CartPole-v1" in agent._repr_html_()


# ── environments ──────────────────────────────────────────────────────────────────────────


class Plain(gymnasium.Env):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, thing=None):
        self.thing, self.goal = thing, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.goal, True, False, {}


def test_an_instance_is_copied_with_all_that_was_changed_on_it():
    env = gymnasium.wrappers.TimeLimit(Plain(thing=[1, 2]), 7)
    env.unwrapped.goal = 3.0
    first, second = (copies(env)() for _ in range(2))
    assert first is not second
    assert first.unwrapped.thing == [1, 2]
    assert first.unwrapped.thing is not env.unwrapped.thing
    assert first.unwrapped.goal == 3.0


class Outside:
    """Stands for a simulator: nothing of it can be copied."""

    __slots__ = ("handle",)

    def __deepcopy__(self, memo):
        raise TypeError("cannot be copied")


def test_an_instance_that_cannot_be_copied_is_made_again_from_its_spec():
    gymnasium.register("Outside-v0", lambda **kwargs: Plain(Outside(), **kwargs))
    try:
        env = gymnasium.make("Outside-v0", max_episode_steps=5)
        made = copies(env)()
        assert made.unwrapped.thing is not env.unwrapped.thing
        assert made.spec.max_episode_steps == 5
    finally:
        del gymnasium.registry["Outside-v0"]


def test_otherwise_a_factory_is_asked_for():
    env = Plain(Outside())
    with pytest.raises(BadInput, match=r"cannot be copied .*; pass a factory") as caught:
        dna.DNA(env).learn(10)
    assert "\n" not in str(caught.value)
    source = UserEnv(env).source(1, EnvConfig())
    assert isinstance(source(), KeptEnv)
    assert source().unwrapped is env


def test_a_vector_environment_says_how_many_agents():
    vector = gymnasium.make_vec("CartPole-v1", 4)
    agent = dna.DNA(vector)
    assert (agent.config.agents, agent.config.horizon) == (4, 256)  # a rollout as large
    with pytest.raises(BadInput, match="agents: given 8, but the VectorEnv has 4"):
        dna.DNA(vector, agents=8)
    vector.close()


@pytest.mark.parametrize(
    ("space", "one"),
    [
        (spaces.Box(0, 1, (3,)), np.zeros(3)),
        (spaces.Box(0, 1, (4, 4, 1)), np.zeros((4, 4, 1))),
        (spaces.Discrete(5), 2),
        (spaces.MultiDiscrete([2, 3]), np.array([0, 1])),
        (spaces.Dict({"a": spaces.Discrete(3)}), {"a": 1}),
    ],
)
def test_one_observation_or_several(space, one):
    def several(x):
        return (
            {k: several(v) for k, v in x.items()} if isinstance(x, dict) else np.stack([x] * 2)
        )

    assert not is_batch(space, one)
    assert is_batch(space, several(one))
    with pytest.raises(BadInput, match="shape"):
        is_batch(space, several(several(several(one))))


# ── callbacks, phases, pictures ───────────────────────────────────────────────────────────


def test_callbacks_without_a_run_are_silent():
    callbacks = Callbacks()
    callbacks.rollout_end()
    callbacks.phase_end("policy", {"policy/loss": 1.0})
    assert not callbacks.stopped


def test_a_phase_must_have_what_the_engine_asks_for():
    class Half(Frozen):
        kind: Literal["half"] = "half"
        name: Name = "half"

    class Taken(Half):
        kind: Literal["policy"] = "policy"
        trains: Literal["policy"] = "policy"
        reads: Literal["rollout"] = "rollout"
        every: Literal[1] = 1
        sgd: SGD

    with pytest.raises(BadInput, match="needs the field 'trains'"):
        dna.register_phase(Half)
    with pytest.raises(BadInput, match="'policy' is taken"):
        dna.register_phase(Taken)
    with pytest.raises(UnknownKey):
        tweak(tiny("dna"), **{"half.sgd.epochs": 1})


def test_an_evaluation_has_a_mean_and_an_interval():
    found = Evaluation((1.0, 3.0), (5, 5))
    assert found.mean == 2.0
    low, high = scipy.stats.t.interval(0.95, 1, loc=2.0, scale=1.0)
    assert found.interval == (pytest.approx(low), pytest.approx(high))
    assert str(found) == "2.00 [-10.71, 14.71] over 2 episodes"


def test_the_card_is_self_contained_and_escaped():
    rows = [{"interactions": 10 * i, "score": float(i), "episodes": i} for i in range(1, 500)]
    html = card("DNA", "<my env>", 3, rows)
    assert "&lt;my env&gt;" in html
    assert "http" not in html
    assert "polyline" in html
    assert html.count(",") < 400  # no more points than pixels
    assert "polyline" not in card("DNA", "x", 0, rows[:1])
    flat = card("DNA", "x", 0, [{"interactions": 1, "score": 0.0}] * 3)
    assert "nan" not in flat
