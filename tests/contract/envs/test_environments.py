"""Environments behind one convention: spaces, seeds, ends of episodes, threads, failures."""

import asyncio

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from dna.common.errors import BadInput, EnvironmentFailure, NonFinite
from dna.config import EnvConfig
from dna.envs import Making, make
from dna.envs.factory import factory
from dna.envs.fake import Countdown, Identity
from dna.envs.spaces import ActionCodec, ObservationCodec, action_codec, observation_codec
from dna.envs.specs import ActionSpec
from helpers import environment, tiny

IDS = ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "FrozenLake-v1", "MinAtar/Breakout-v1"]


def trace(env, steps=120, seed=0):
    """Everything an environment shows under the same random actions."""
    rng = np.random.default_rng(seed)
    rows = [env.reset().tobytes()]
    for _ in range(steps):
        step = env.step(env.uniform(rng))
        finals = b"".join(step.final_obs[a].tobytes() for a in sorted(step.final_obs))
        rows.append(step.obs.tobytes() + step.reward.tobytes() + step.done.tobytes() + finals)
    env.close()
    return rows


@pytest.mark.parametrize("env_id", IDS)
def test_the_same_seed_is_equal_another_differs_and_threads_change_nothing(env_id):
    config = tiny(env_id=env_id)
    first = trace(environment(config, seed=7))
    assert trace(environment(config, seed=7)) == first
    assert trace(environment(config, seed=8)) != first
    assert trace(environment(config, seed=7, threads=2)) == first


@pytest.mark.parametrize("env_id", IDS)
def test_shapes_and_dtypes_are_those_of_the_specs(env_id):
    env = environment(tiny(env_id=env_id))
    obs = env.reset()
    step = env.step(env.uniform(np.random.default_rng(0)))
    for array in (obs, step.obs):
        assert array.shape == (env.agents, *env.observation.shape)
        assert array.dtype == np.dtype(env.observation.dtype)
    assert step.reward.dtype == np.float32
    assert step.terminated.dtype == step.done.dtype == step.valid.dtype == np.bool_
    assert not (step.terminated & ~step.done).any()


def test_the_final_observation_is_the_true_last_one_and_the_next_is_a_first_one():
    env = make(EnvConfig(), Making(1, (0,)), lambda: Countdown(3))
    env.reset()
    action = np.zeros((1, 1), np.int64)
    steps = [env.step(action) for _ in range(6)]
    assert [bool(s.done[0]) for s in steps] == [False, False, True] * 2
    assert [float(s.obs[0, 0]) for s in steps] == [1, 2, 0, 1, 2, 0]
    assert [float(s.final_obs[0][0]) for s in steps if s.done[0]] == [3, 3]
    assert [float(s.reward[0]) for s in steps] == [0, 0, 1, 0, 0, 1]


def test_our_step_limit_truncates_and_never_terminates():
    env = make(EnvConfig(max_episode_steps=4), Making(1, (0,)), lambda: Identity(length=100))
    env.reset()
    steps = [env.step(np.zeros((1, 1), np.int64)) for _ in range(8)]
    assert [bool(s.done[0]) for s in steps] == [False, False, False, True] * 2
    assert not any(s.terminated[0] for s in steps)


def test_held_environments_stay_where_they_are():
    env = make(EnvConfig(), Making(2, (0, 1)), lambda: Countdown(9))
    env.reset()
    for _ in range(3):
        step = env.step(np.zeros((2, 1), np.int64), active=np.array([True, False]))
        assert step.valid.tolist() == [True, False]
    after = env.step(np.zeros((2, 1), np.int64))
    assert after.obs[:, 0].tolist() == [4, 1]


@pytest.mark.parametrize(
    ("space", "kind", "shape", "dtype"),
    [
        (spaces.Box(-1, 1, (3,), np.float64), "vector", (3,), "float32"),
        (spaces.Box(-1, 1, (2, 5), np.float32), "vector", (10,), "float32"),
        (spaces.Box(0, 255, (84, 80, 3), np.uint8), "image", (84, 80, 3), "uint8"),
        (spaces.Box(0, 255, (4, 84, 80), np.uint8), "image", (84, 80, 4), "uint8"),
        (spaces.Box(0, 1, (10, 10, 4), np.bool_), "image", (10, 10, 4), "bool"),
        (spaces.Box(0, 1, (8, 8, 12), np.float32), "image", (8, 8, 12), "float32"),
        (spaces.Box(0, 1, (12, 8, 8), np.float32), "image", (8, 8, 12), "float32"),
        (spaces.Discrete(5, start=3), "vector", (5,), "float32"),
        (spaces.MultiDiscrete([2, 3]), "vector", (5,), "float32"),
        (spaces.MultiBinary(4), "vector", (4,), "float32"),
    ],
)
def test_observation_spaces_become_specs(space, kind, shape, dtype):
    codec = ObservationCodec(space)
    space.seed(0)
    sample = space.sample()
    encoded = codec.encode_batch([sample])
    assert (codec.spec.kind, codec.spec.shape, codec.spec.dtype) == (kind, shape, dtype)
    assert encoded.shape == (1, *shape)
    assert encoded.dtype == np.dtype(dtype)


def test_channels_in_front_move_behind_with_their_pixels():
    space = spaces.Box(0, 255, (3, 6, 5), np.uint8)
    picture = np.arange(90, dtype=np.uint8).reshape(3, 6, 5)
    encoded = ObservationCodec(space).encode(picture)
    assert encoded[4, 2, 1] == picture[1, 4, 2]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([2, 3, 4]),
        spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
        spaces.MultiBinary(3),
        spaces.Box(-2, 3, (2, 2), np.float32),
        spaces.Box(-np.inf, np.inf, (2,), np.float64),
    ],
)
def test_uniform_actions_lie_in_the_space(space):
    codec = ActionCodec(space)
    actions = codec.uniform(np.random.default_rng(0), 200)
    assert actions.shape == (200, codec.spec.width)
    assert all(space.contains(codec.decode(action)) for action in actions)


def test_uniform_choices_reach_every_action():
    codec = ActionCodec(spaces.Discrete(4, start=-2))
    actions = codec.uniform(np.random.default_rng(0), 200)
    assert {codec.decode(a) for a in actions} == {-2, -1, 0, 1}


def test_real_numbers_are_clipped_for_the_environment():
    codec = ActionCodec(spaces.Box(-2, 2, (1,), np.float32))
    assert codec.decode(np.array([5.0], np.float32)).tolist() == [2.0]


@pytest.mark.parametrize(
    "space",
    [spaces.Dict(a=spaces.Discrete(2)), spaces.Tuple([spaces.Discrete(2)]), spaces.Text(3)],
)
def test_other_spaces_are_refused_with_a_way_out(space):
    with pytest.raises(BadInput, match="use Box"):
        ObservationCodec(space)
    with pytest.raises(BadInput, match="use Discrete"):
        ActionCodec(space)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Box(0, 3, (2,), np.int64), "Box of int64 is not supported; use MultiDiscrete"),
        (spaces.Box(0, 255, (2,), np.uint8), "Box of uint8 is not supported; use MultiDisc"),
        (spaces.Box(0, 1, (2,), np.bool_), "Box of bool is not supported; use MultiBinary"),
        (spaces.Box(-1, 1, (0,), np.float32), r"Box of shape \(0,\) has nothing to do"),
        (spaces.Dict(a=spaces.Box(0, 3, (2,), np.int8)), "^'a': action space Box of int8"),
    ],
)
def test_an_action_space_that_is_refused_names_what_is_wrong(space, words):
    with pytest.raises(BadInput, match=words):
        action_codec(space)


class MissionSpace(spaces.Space):
    """As MiniGrid's: neither a Text nor anything else that can be flattened."""


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (
            spaces.Dict(image=spaces.Box(0, 255, (7, 7, 3), np.uint8), mission=MissionSpace()),
            "^'mission': .*MissionSpace.* wrap .* minigrid.wrappers.ImgObsWrapper or "
            "FlatObsWrapper$",
        ),
        (spaces.Dict(a=spaces.Discrete(2), text=spaces.Text(3)), "FilterObservation drops it$"),
        (spaces.Tuple([spaces.Discrete(2)]), "or wrap the environment in FlattenObservation$"),
        (spaces.Sequence(spaces.Discrete(2)), "or a Dict of these$"),  # cannot be flattened
        (spaces.Dict({"a/b": spaces.Discrete(2)}), "'a/b': a name must not contain '/'"),
    ],
)
def test_an_observation_space_that_is_refused_names_the_wrapper(space, words):
    with pytest.raises(BadInput, match=words) as caught:
        observation_codec(space, ActionSpec("categorical", (2,)), {})
    assert len(str(caught.value)) <= 200


@pytest.mark.parametrize("env_id", ["MiniGrid-Empty-5x5-v0", "BabyAI-GoToObj-v0"])
def test_the_ids_of_minigrid_name_its_wrapper(env_id):
    assert env_id not in gymnasium.registry
    with pytest.raises(BadInput, match=r"pip install minigrid.*ImgObsWrapper"):
        factory(EnvConfig(id=env_id))


class OldStep(Countdown):
    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated or truncated, info


class OldReset(Countdown):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldDictReset(Countdown):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Dict(a=spaces.Discrete(2), b=spaces.Discrete(2))

    def reset(self, *, seed=None, options=None):
        return {"a": 0, "b": 1}


class Seedless(Countdown):
    def reset(self):
        return super().reset()


class NoStep(Countdown):
    def step(self, action):
        pass


STEP = r"Gymnasium's step returns obs, reward, terminated, truncated, info$"
RESET = r"Gymnasium's reset\(seed=None, options=None\) returns obs, info$"


def play_once(source):
    env = make(EnvConfig(), Making(1, (0,)), source)
    env.reset()
    env.step(np.zeros((1, 1), np.int64))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OldStep, f"agent 0: TypeError: step returned 4 values; {STEP}"),
        (NoStep, f"step returned a NoneType; {STEP}"),
        (OldReset, f"environment: TypeError: reset returned a ndarray; {RESET}"),
        (OldDictReset, f"reset returned a dict; {RESET}"),
        (Seedless, f"reset takes no seed; {RESET}"),
    ],
)
@pytest.mark.parametrize("actions", [spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)])
def test_an_environment_of_the_old_gym_is_told_the_api(kind, words, actions):
    def create():
        env = kind()
        env.action_space = actions
        return env

    with pytest.raises(EnvironmentFailure, match=words) as caught:
        play_once(create)
    assert len(str(caught.value)) <= 200


@pytest.mark.parametrize(
    ("kind", "words"),
    [(OldStep, rf"\(expected 5, got 4\); {STEP}"), (OldReset, f"to unpack .*; {RESET}")],
)
@pytest.mark.parametrize(
    "source",
    [
        lambda kind: lambda: gymnasium.wrappers.RecordEpisodeStatistics(kind()),
        lambda kind: gymnasium.vector.SyncVectorEnv([kind]),
    ],
)
def test_a_wrapper_of_the_old_gym_is_told_the_api(source, kind, words):
    with pytest.raises(EnvironmentFailure, match=words):
        play_once(source(kind))


class Asserts(Countdown):
    """Fails without a message, in the method it is told."""

    def __init__(self, where="init"):
        super().__init__()
        self.where = where
        if where == "init":
            raise AssertionError  # in init

    def reset(self, *, seed=None, options=None):
        if self.where == "reset":
            raise AssertionError  # in reset
        return super().reset(seed=seed)

    def step(self, action):
        if self.where == "step":
            raise AssertionError  # in step
        return super().step(action)


@pytest.mark.parametrize(("where", "who"), [("init", ""), ("reset", ""), ("step", ", agent 0")])
def test_an_exception_without_a_message_shows_its_line(where, who):
    words = rf"^environment{who}: AssertionError at test_environments\.py:\d+: "
    with pytest.raises(EnvironmentFailure, match=words) as caught:
        play_once(lambda: Asserts(where))
    assert str(caught.value).endswith(f": raise AssertionError  # in {where}")


def test_an_id_whose_assertion_fails_shows_its_line():
    gymnasium.register("Asserts-v0", Asserts)
    words = r"cannot be made \(AssertionError at test_environments.py:\d+: raise AssertionError"
    try:
        with pytest.raises(BadInput, match=words):
            factory(EnvConfig(id="Asserts-v0"))()
    finally:
        del gymnasium.registry["Asserts-v0"]


class Unspeakable(BaseException):
    """An exception that is no `Exception`, whose message cannot be had."""

    def __str__(self):
        raise ValueError("no words")


class Interrupting(Exception):
    """An exception whose message looks like Ctrl-C, which nobody pressed."""

    def __str__(self):
        raise KeyboardInterrupt


RAISED = {
    "raise": RuntimeError("the motor\nburned out"),
    "exit": SystemExit(0),
    "generator": GeneratorExit(),
    "cancelled": asyncio.CancelledError("later"),
    "unspeakable": Unspeakable(),
    "interrupting": Interrupting(),
    "key": KeyError(type("Odd", (), {"__repr__": lambda self: 1 / 0})()),
    "escapes": RuntimeError("\x1b[31mred\x07"),
}


class Broken(Countdown):
    """Fails in a chosen way on its second step."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        if self.t == 2:
            if self.how in RAISED:
                raise RAISED[self.how]
            if self.how == "nan observation":
                obs = obs * np.nan
            if self.how == "nan reward":
                reward = float("inf")
            if self.how == "nan at the end":
                return obs * np.nan, reward, False, True, info
            if self.how == "shape":
                obs = np.zeros(2, np.float32)
        return obs, reward, terminated, truncated, info


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("raise", EnvironmentFailure, "agent 0: RuntimeError: the motor$"),
        ("shape", EnvironmentFailure, r"shape \(2,\) is not \(1,\)"),
        ("exit", EnvironmentFailure, "SystemExit"),
        ("generator", EnvironmentFailure, "agent 0: GeneratorExit at test_env"),
        ("cancelled", EnvironmentFailure, "agent 0: CancelledError: later$"),
        ("unspeakable", EnvironmentFailure, r"Unspeakable: .*\(ValueError in __str__\)$"),
        ("interrupting", EnvironmentFailure, r"\(KeyboardInterrupt in __str__\)$"),
        ("key", EnvironmentFailure, r"KeyError: .*\(ZeroDivisionError in __str__\)$"),
        ("escapes", EnvironmentFailure, r"RuntimeError: \\x1b\[31mred\\x07$"),
        ("nan at the end", NonFinite, "final observation that is not finite"),
        ("nan observation", NonFinite, "gave an observation that is not finite"),
        ("nan reward", NonFinite, "gave a reward that is not finite"),
    ],
)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_broken_environment_is_named_in_one_line(how, error, words, threads):
    env = make(EnvConfig(id="Broken"), Making(2, (0, 1), threads), lambda: Broken(how))
    env.reset()
    env.step(np.zeros((2, 1), np.int64))
    with pytest.raises(error, match=words):
        env.step(np.zeros((2, 1), np.int64))
    env.close()


@pytest.mark.parametrize(
    ("space", "observation", "words"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), np.full(2, 0.5), "float64 .* uint8"),
        (spaces.Box(0, 255, (2,), np.uint8), [300, 0], "300 .* uint8"),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([-1, 0]), "-1 .* uint8"),
        (spaces.Box(0, 1, (2,), np.bool_), np.array([2, 0]), "2 .* bool"),
        (spaces.Box(-1, 1, (2,), np.float32), np.array([1j, 0]), "complex128 .* float32"),
        (spaces.Box(-1, 1, (2,), np.float32), ["1", "2"], "<U1 .* float32"),
        (spaces.Box(-1, 1, (2,), np.float32), np.array([None, 1]), "object .* float32"),
        (spaces.Discrete(3, start=1), 0, r"0 is not in Discrete\(3, start=1\)"),
        (spaces.Discrete(3), -1, r"-1 is not in Discrete\(3\)"),
        (spaces.Discrete(3), 1.5, "1.5 is not in"),
        (spaces.Discrete(3), "1", "1 is not in"),
        (spaces.MultiDiscrete([2, 3]), np.array([0, -1]), r"\[ 0 -1\] is not in MultiDiscrete"),
        (spaces.MultiDiscrete([2, 3]), np.array([0]), r"\[0\] is not in MultiDiscrete"),
        (spaces.MultiBinary(2), np.array([0, 7]), r"\[0 7\] is not in MultiBinary"),
    ],
)
def test_an_observation_that_the_space_cannot_hold_is_refused(space, observation, words):
    with pytest.raises(ValueError, match=words):
        ObservationCodec(space).encode(observation)


@pytest.mark.parametrize(
    ("space", "observation", "row"),
    [
        (spaces.Box(0, 255, (2,), np.uint8), [200, 7], [200, 7]),
        (spaces.Box(0, 1, (2,), np.bool_), np.array([1, 0]), [True, False]),
        (spaces.Box(-1, 1, (2,), np.float32), [1, 0.5], [1.0, 0.5]),
        (spaces.Discrete(3, start=1), np.int64(3), [0, 0, 1]),
        (spaces.MultiDiscrete([2, 2]), [1, 0], [0, 1, 1, 0]),
        (spaces.MultiBinary(2), [1.0, 0.0], [1, 0]),
    ],
)
def test_an_observation_of_another_type_that_the_space_holds_is_converted(
    space, observation, row
):
    assert ObservationCodec(space).encode_batch([observation])[0].tolist() == row


class Answers(Countdown):
    """Answers with the given reward and end."""

    def __init__(self, reward, terminated):
        super().__init__()
        self.answer = (reward, terminated, False)

    def step(self, action):
        return (super().step(action)[0], *self.answer, {})


@pytest.mark.parametrize(
    ("reward", "terminated", "words"),
    [
        (0.0, "no", "terminated is 'no', not a bool$"),
        (0.0, 2, "terminated is 2, not a bool$"),
        (0.0, np.array([True]), r"terminated is array\(\[ True\]\), not a bool$"),
        ("5", False, "reward is '5', not a number$"),
        (None, False, "reward is None, not a number$"),
        (1j, False, "reward is 1j, not a number$"),
        (np.zeros(1), False, r"reward is array\(\[0.\]\), not a number$"),
    ],
)
def test_a_reward_or_end_of_another_type_is_refused(reward, terminated, words):
    with pytest.raises(EnvironmentFailure, match=words):
        play_once(lambda: Answers(reward, terminated))


@pytest.mark.parametrize(
    ("reward", "terminated"),
    [(1, True), (np.float64(1), np.True_), (np.array(1.0), 1), (True, np.array(True))],
)
def test_numbers_and_bools_of_numpy_are_rewards_and_ends(reward, terminated):
    env = make(EnvConfig(), Making(1, (0,)), lambda: Answers(reward, terminated))
    env.reset()
    step = env.step(np.zeros((1, 1), np.int64))
    assert (step.reward.tolist(), step.terminated.tolist()) == ([1.0], [True])


def test_one_environment_cannot_play_for_all():
    env = Countdown()
    with pytest.raises(BadInput, match="a new environment each time"):
        make(EnvConfig(), Making(2, (0, 1)), lambda: env)


def test_a_factory_that_fails_is_named():
    def broken():
        raise OSError("no simulator")

    with pytest.raises(EnvironmentFailure, match="Sim: OSError: no simulator"):
        make(EnvConfig(id="Sim"), Making(1, (0,)), broken)


def test_a_factory_must_make_an_environment():
    with pytest.raises(BadInput, match=r"not a gymnasium\.Env"):
        make(EnvConfig(), Making(1, (0,)), lambda: 3)


def test_ids_that_import_code_need_permission():
    with pytest.raises(BadInput, match="--allow-import"):
        factory(EnvConfig(id="dna.envs.fake:Identity"))
    create = factory(EnvConfig(id="dna.envs.fake:Identity"), allow_import=True)
    assert isinstance(create(), Identity)
    with pytest.raises(BadInput, match="neither a callable nor an id"):
        factory(EnvConfig(id="dna.envs.fake:Nothing"), allow_import=True)
    with pytest.raises(BadInput, match="cannot import no_such_module"):
        factory(EnvConfig(id="no_such_module:x"), allow_import=True)


def test_options_reach_the_environment_and_wrong_ones_are_refused():
    create = factory(EnvConfig(id="FrozenLake-v1", options={"is_slippery": False}))
    assert isinstance(create(), gymnasium.Env)
    with pytest.raises(BadInput, match="cannot be made"):
        factory(EnvConfig(id="FrozenLake-v1", options={"slipery": False}))()
