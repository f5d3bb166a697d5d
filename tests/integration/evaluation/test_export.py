"""ONNX files are the policy: compared with torch, fed by their contract alone, played."""

import json
import sys
from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from contract.envs.test_own_environments import Masked, Robot
from dna.cli import main
from dna.common.errors import BadInput, MissingExtra, StorageFailure
from dna.common.randomness import integer
from dna.config.environments import Atari
from dna.envs.factory import factory
from dna.envs.specs import ObservationSpec, Part, spans
from dna.evaluation.evaluate import Playing, evaluate
from dna.evaluation.export.onnx_file import (
    OnnxPolicy,
    Runtime,
    compare,
    environment_interface,
    to_onnx,
)
from dna.evaluation.export.onnx_policy import inputs, output_names, spec_of
from dna.networks.encoders import register_encoder
from dna.runs.policy import load_policy
from dna.runs.setup import How
from dna.runs.train import train
from helpers import tiny

HOW = How(tensorboard=False, threads=1)
#: No luck of ours, so that the emulator alone can be played beside it.
PONG = {"sticky": 0.0, "noops": None, "max_frames": 240}
WORLDS = {
    "atari": (tiny("ppo", "ALE/Pong-v5", **{"env.atari": PONG, "interactions": 64}), None),
    "mujoco": (tiny("dna", "HalfCheetah-v5", **{"env.max_episode_steps": 60}), None),
    "minatar": (tiny("ppo", "MinAtar/Breakout-v1", **{"env.max_episode_steps": 80}), None),
    "masked": (tiny("dna", None), lambda: Masked("obs", (2, 3))),
    "hybrid": (tiny("dna", None), Robot),
}


class World:
    """A trained policy, its file, and both played by our environments."""

    def __init__(self, name, folder):
        self.config, self.source = WORLDS[name]
        train(self.config, 0, folder / "run", how=HOW, source=self.source)
        self.policy = load_policy(folder / "run" / "policy")
        if name == "hybrid":  # beyond every bound
            with torch.no_grad():
                self.policy.network.policy_head.bias[:] = torch.tensor([0.0, 0, 9, 5, -5])
        self.file = to_onnx(self.policy, environment_interface(self.policy, source=self.source))
        self.path = folder / "policy.onnx"
        self.beside = self.file.write(self.path)

    def scores(self, policy, deterministic=True):
        how = Playing(source=self.source)
        env = self.policy.env
        return evaluate(
            policy, env, episodes=3, seed=1, deterministic=deterministic, how=how
        ).scores


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    made = {}

    def world(name):
        if name not in made:
            made[name] = World(name, tmp_path_factory.mktemp(name))
        return made[name]

    return world


@pytest.mark.parametrize("name", WORLDS)
def test_a_file_is_within_rounding_of_torch(worlds, name):
    world = worlds(name)
    assert world.file.compared.difference < 2e-6
    assert world.file.compared.observations == 64


@pytest.mark.parametrize("name", WORLDS)
def test_our_environments_give_the_same_scores_with_either(worlds, name):
    world = worlds(name)
    player = OnnxPolicy(world.path, world.policy)
    # Sampled actions throw the cheetah about: there, torch with one last bit moved is as far
    # from itself after 30 steps as it is from the file.
    for deterministic in (True,) if name == "mujoco" else (True, False):
        found = world.scores(player, deterministic)
        assert found == pytest.approx(world.scores(world.policy, deterministic), abs=1e-3)


# ── the contract alone: onnxruntime and Gymnasium, nothing of ours ────────────────────────


def fed(entry, obs, info):
    """One input, made as its description says."""
    if entry["kind"] == "mask":
        found = obs["action_mask"] if isinstance(obs, dict) else info["action_mask"]
        return np.asarray(found, bool)[None]
    if isinstance(obs, dict):
        for name in entry["name"].split("/"):
            obs = obs[name]
    for step in entry["steps"]:
        if step.startswith("one-hot"):
            obs = np.eye(entry["shape"][1])[obs]
        elif step.startswith("move"):
            obs = np.moveaxis(obs, 0, -1)
        elif step.startswith("flatten"):
            obs = np.reshape(obs, -1)
        else:
            assert step == "as float32"
    return np.asarray(obs, entry["dtype"])[None]


def decided(out):
    """The action, of a Dict name by name."""
    if "action" in out:
        return out["action"][0]
    named = {n.removeprefix("action/"): x[0] for n, x in out.items() if n.startswith("action/")}
    return {name: np.asarray(x) if x.shape else int(x) for name, x in named.items()}


@pytest.mark.parametrize("name", ["mujoco", "minatar", "masked", "hybrid"])
def test_onnxruntime_and_gymnasium_alone_reach_the_same_scores(worlds, name):
    world = worlds(name)
    runtime = Runtime(world.path.read_bytes())
    contract = json.loads(runtime.properties["contract"])
    assert contract == json.loads(world.beside.read_text())
    create = world.source or factory(world.config.env)
    limit = contract["environment"]["max_episode_steps"] or 10**6
    scores = []
    for agent in range(3):
        env, score = create(), 0.0
        obs, info = env.reset(seed=integer(1, "eval/env", agent))
        for _ in range(limit):
            feed = {e["name"]: fed(e, obs, info) for e in contract["inputs"]}
            obs, reward, ended, cut, info = env.step(decided(runtime.run(feed)))
            score += reward
            if ended or cut:
                break
        scores.append(score)
    assert sorted(scores) == pytest.approx(sorted(world.scores(world.policy)), abs=1e-3)


class Screens:
    """Observations of an emulator, made as the contract says and with nothing of ours."""

    def __init__(self, contract):
        import ale_py

        self.steps = {step["step"]: step for step in contract["preprocessing"]}
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", self.steps["skip"]["sticky"])
        self.ale.loadROM(ale_py.roms.get_rom_path("pong"))
        self.ale.reset_game()
        self.actions = [getattr(ale_py.Action, name) for name in contract["meanings"]]
        self.elapsed, self.score = 0, 0.0
        first = self.small(self.ale.getScreenGrayscale())
        self.stack = [first] * self.steps["stack"]["frames"]

    def small(self, screen):
        import cv2

        size = tuple(self.steps["resize"]["size"])
        return cv2.resize(screen, size, interpolation=cv2.INTER_AREA)

    def step(self, action):
        screens = []
        for _ in range(self.steps["skip"]["frames"]):
            self.score += self.ale.act(self.actions[action])
            self.elapsed += 1
            screens.append(self.ale.getScreenGrayscale())
        frame = self.small(np.max(screens[-self.steps["max"]["of"] :], axis=0))
        side = self.steps["mark"]["pixels"]
        bright = self.steps["mark"]["brightness"]
        frame[side * action : side * (action + 1), :side] = bright
        self.stack = [*self.stack[1:], frame]

    def observation(self):
        bar = self.steps["time"]
        oldest = self.stack[0].copy()
        width, border = oldest.shape[1], bar["border"]
        gone, ahead = bar["brightness"]
        oldest[-bar["rows"] :] = 0
        reached = border + (width - 2 * border) * self.elapsed / bar["full_at"]
        for column in range(border, width - border):
            level = gone if column < int(reached) else ahead
            if column == int(reached):
                level = ahead + int((gone - ahead) * (reached - int(reached)))
            oldest[-bar["rows"] + 1 : -1, column] = level
        return np.stack([oldest, *self.stack[1:]], axis=-1)[None]


def test_an_emulator_fed_by_the_contract_alone_plays_the_same_pong(worlds):
    world = worlds("atari")
    runtime = Runtime(world.path.read_bytes())
    contract = json.loads(runtime.properties["contract"])
    assert len(contract["meanings"]) == 18
    game = Screens(contract)
    while game.elapsed < PONG["max_frames"]:
        out = runtime.run({"observation": game.observation()})
        game.step(int(out["action"][0]))
    # Without luck, every game is the same one.
    assert world.scores(world.policy) == (game.score,) * 3


# ── what a file holds ─────────────────────────────────────────────────────────────────────


def test_hybrid_actions_are_in_their_spaces(worlds):
    world = worlds("hybrid")
    player = OnnxPolicy(world.path, world.policy)
    out = {e["name"]: e for e in player.contract["outputs"]}
    assert set(out) == {"action/grip", "action/move", "logits", "mean", "log_std", "value"}
    assert out["action/grip"]["start"] == [1]
    assert out["action/move"]["low"] == [-1, -1]
    names = [e["name"] for e in player.contract["inputs"]]
    assert names == ["body/gear", "body/joints", "touch", "camera"]


def test_bounds_and_offsets_are_applied(worlds):
    runtime = Runtime(worlds("hybrid").path.read_bytes())
    camera = np.zeros((2, 12, 12, 3), np.uint8)
    feed = {"body/gear": np.eye(4)[:2], "body/joints": np.zeros((2, 3)), "touch": np.eye(2)}
    feed = {name: x.astype(np.float32) for name, x in feed.items()} | {"camera": camera}
    out = runtime.run(feed)
    assert out["action/grip"].tolist() == [3, 3]
    assert out["action/move"].tolist() == [[1, -1], [1, -1]]
    assert (np.abs(out["mean"]) > 4).all()


def test_masked_logits_have_no_chance(worlds):
    world = worlds("masked")
    runtime = Runtime(world.path.read_bytes())
    mask = np.array([[True, False, False, True, False]])
    out = runtime.run({"observation": np.ones((1, 4), np.float32), "action_mask": mask})
    assert (out["logits"] == -1e8).tolist() == (~mask).tolist()
    assert out["action"].tolist() == [[0, 1]]


def test_names_that_clash_with_an_output_get_a_prefix():
    parts = [Part("value", "vector", (2,), "float32"), Part("x", "vector", (1,), "float32")]
    found = inputs(ObservationSpec.pack(parts), ["action", "logits", "value"])
    assert [entry.name for entry in found] == ["observation/value", "x"]
    assert len(spans(ObservationSpec.pack(parts))) == 2


def test_words_name_everything_there_is_to_feed(worlds):
    for name in WORLDS:
        contract = worlds(name).file.contract
        text = "\n".join(contract["words"])
        for entry in [*contract["inputs"], *contract["outputs"]]:
            assert f"'{entry['name']}'" in text


@pytest.mark.parametrize("what", ["weight", "shift", "order"])
def test_a_file_that_is_not_the_policy_is_refused(worlds, what):
    world = worlds("masked")
    spec, file = spec_of(world.policy.distribution), Runtime(world.path.read_bytes())
    parts = environment_interface(world.policy, source=world.source).actions
    given = inputs(world.policy.preprocess.spec, output_names(spec, parts))
    compare(world.policy, spec, parts, file, given)
    other = load_policy(world.path.parent / "run" / "policy")
    with torch.no_grad():
        if what == "weight":
            other.network.policy_head.weight[0] += 1e-4
        elif what == "shift":
            other.preprocess.shift += 1e-4
        else:
            parts = (replace(parts[0], columns=(1, 0)),)
    with pytest.raises(StorageFailure, match="differs from torch"):
        compare(other, spec, parts, file, given)


# ── the command ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cartpole") / "run"
    module = nn.Sequential(nn.Linear(4, 8), nn.ELU())
    name = register_encoder(module, "export_tower")
    train(tiny("dna", **{"network.encoder": name}), 0, folder, how=HOW)
    return folder


def test_the_command_writes_a_file_and_says_how_far_it_is(cartpole, tmp_path, capfd):
    out = tmp_path / "deep" / "cartpole.onnx"
    assert main(["export", str(cartpole), "--out", str(out)]) == 0
    said, complaints = capfd.readouterr()
    assert complaints == ""
    assert "from torch over 64 random observations" in said
    assert json.loads(out.with_suffix(".json").read_text())["post_processing"]
    assert main(["export", str(cartpole), "--format", "onnx", "--no-env"]) == 0
    assert "no offsets" in capfd.readouterr()[0]
    contract = json.loads((cartpole / "policy.json").read_text())
    assert "Made without the environment" in "\n".join(contract["words"])


def test_bfloat16_becomes_float32_and_says_so(tmp_path):
    config = tiny("ppo", **{"network.precision": "bfloat16", "interactions": 64})
    train(config, 0, tmp_path / "run", how=HOW)
    policy = load_policy(tmp_path / "run" / "policy")
    file = to_onnx(policy, None)
    assert file.compared.difference < 2e-6
    assert "Trained with an encoder in bfloat16" in "\n".join(file.contract["words"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "nothing"], "no run here"),
        (["export", "{run}", "--out", "policy.txt"], "must end in .onnx"),
        (["export", "{run}", "--format", "hub"], "--out: required by"),
    ],
)
def test_a_bad_command_is_one_line(cartpole, words, message, capsys):
    assert main([word.format(run=cartpole) for word in words]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_an_environment_from_python_is_said_to_be_one(tmp_path, capsys):
    make = partial(gymnasium.make, "CartPole-v1")
    train(tiny("dna", None, interactions=64), 0, tmp_path / "run", how=HOW, source=make)
    run = str(tmp_path / "run")
    hub = ["--format", "hub", "--out", str(tmp_path / "hub")]
    for words, message in (
        (["export", run], "came from Python and cannot be made here; add --no-env"),
        (["export", run, *hub], "dna.load(FOLDER, env=…)"),
        (["eval", run], "an environment from Python must be passed again"),
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
    assert main(["export", run, "--no-env"]) == 0


def test_without_the_libraries_the_extra_is_named(cartpole, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", str(cartpole)]) == MissingExtra.exit_code
    assert "pip install 'ppo-dna[export]'" in capsys.readouterr().err


def test_an_environment_that_looks_different_is_refused(cartpole):
    policy = load_policy(cartpole / "policy")
    other = replace(policy, env=policy.env.model_copy(update={"id": "Acrobot-v1"}))
    with pytest.raises(BadInput, match="its spaces differ"):
        environment_interface(other)
    assert gymnasium.spec("Acrobot-v1")
    assert Atari(**PONG).max_frames == 240
