"""`dna record` in every kind of world, decoded again; saved policies of both formats."""

import io
import json

import av
import gymnasium
import numpy as np
import pytest
import torch
from PIL import Image

from dna.cli import main
from dna.common.storage import read_folder, write_folder
from dna.common.tensor_files import tensor_bytes, tensors_from
from dna.envs import Making, make
from dna.evaluation.film import CHOSEN, WIDTH, Film, distribution_of, mp4, poster
from dna.runs.policy import load_policy
from helpers import tiny
from untrained import SHORT, settings, untrained

SIZES = {
    "CartPole-v1": (400, 600),
    "MinAtar/Breakout-v1": (320, 320),
    "ALE/Pong-v5": (420, 320),
    "HalfCheetah-v5": (480, 480),
    "procgen/bigfish": (320, 320),
}
NAMES = {
    "CartPole-v1": (),
    "MinAtar/Breakout-v1": ("noop", "left", "right"),
    "ALE/Pong-v5": ("noop", "fire", "up"),
    "HalfCheetah-v5": (),
    "procgen/bigfish": ("left+down", "left", "left+up"),
}


def decoded(path):
    """The pictures of a film."""
    if path.suffix == ".gif":
        image = Image.open(io.BytesIO(path.read_bytes()))
        frames = []
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")))
        return frames
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def lines(frame):
    """Pixels of V_π's blue and of V_V's orange in the chart and above it; films blur colors."""
    red, _, blue = np.moveaxis(frame[62:170, -WIDTH:].astype(int), -1, 0)
    return int((blue > red + 40).sum()), int((red > blue + 40).sum())


@pytest.mark.parametrize("env_id", SHORT)
def test_films_of_every_world(env_id, tmp_path, capsys):
    untrained(tmp_path / "run", settings(env_id))
    height, width = SIZES[env_id]
    words = ["record", str(tmp_path / "run"), "--frames", "10"]
    for kind in ("mp4", "gif"):
        path = tmp_path / f"film.{kind}"
        assert main([*words, "--out", str(path)]) == 0
        told = int(capsys.readouterr().out.split(" frames")[0].split()[-1])
        frames = decoded(path)
        assert len(frames) == told >= 10
        assert frames[0].shape == (height, width + WIDTH, 3)
        panels = [frame[:, -WIDTH:].astype(int) for frame in frames]
        assert np.abs(panels[9] - panels[0]).max() > 50
        assert min(lines(frames[5])) > 20


@pytest.mark.parametrize("env_id", SHORT)
def test_actions_have_names_where_they_are_known(env_id):
    vector = make(settings(env_id).env, Making(1, (0,)))
    try:
        assert vector.meanings()[:3] == NAMES[env_id]
    finally:
        vector.close()


def test_one_network_has_no_second_line(tmp_path, capsys):
    policy = untrained(tmp_path / "run", settings("CartPole-v1", "ppo"))
    assert policy.value is None
    assert main(["record", str(tmp_path / "run"), "--format", "gif", "--frames", "4"]) == 0
    frames = decoded(tmp_path / "run" / "episode.gif")
    blue, orange = lines(frames[3])
    assert blue > 20
    assert orange == 0


def test_a_sure_policy_shows_a_full_bar(tmp_path):
    policy = untrained(tmp_path / "run", settings("CartPole-v1"))
    policy.network.policy_head.bias.data = torch.tensor([40.0, 0.0])
    frame = next(iter(Film(policy, 0, most=1).frames()))
    row = frame[200, -WIDTH:]
    assert (row == CHOSEN).all(-1).sum() > 150
    (p,), _ = distribution_of(policy, np.array([40.0, 0.0]))
    assert p[0] == pytest.approx(1.0)


def test_a_film_that_is_cut_says_so_and_plain_ones_are_bare(tmp_path, capsys):
    untrained(tmp_path / "run", settings("CartPole-v1"))
    run = str(tmp_path / "run")
    assert main(["record", run, "--frames", "4", "--plain"]) == 0
    printed = capsys.readouterr().out
    assert "4 frames, score 4.00 so far: the video was cut after 4 steps" in printed
    frames = decoded(tmp_path / "run" / "episode.mp4")
    assert [frame.shape for frame in frames] == [(400, 600, 3)] * 4
    for words in (["--out", "x.avi"], ["--out", "x.gif", "--format", "mp4"]):
        assert main(["record", run, *words]) == 2
        assert "must end in" in capsys.readouterr().err


def test_the_best_of_several_is_the_episode_that_eval_scored_best(tmp_path, capsys):
    policy = untrained(tmp_path / "run", settings("CartPole-v1"))
    from dna.evaluation.evaluate import evaluate

    best = max(evaluate(policy, policy.env, episodes=5, seed=3).scores)
    assert main(["record", str(tmp_path / "run"), "--best-of", "5", "--seed", "3"]) == 0
    assert f"score {best:.2f}, the best of 5" in capsys.readouterr().out


class Drawn(gymnasium.Env):
    """A dictionary to see, some choices illegal, and a picture to film."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    action_space = gymnasium.spaces.Discrete(3)
    observation_space = gymnasium.spaces.Dict(
        {
            "at": gymnasium.spaces.Box(-1, 1, (2,)),
            "action_mask": gymnasium.spaces.MultiBinary(3),
        }
    )

    def __init__(self, render_mode=None):
        self.render_mode, self.steps = render_mode, 0

    def _see(self):
        return {"at": np.zeros(2, np.float32), "action_mask": np.array([1, 0, 1], np.int8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._see(), {}

    def step(self, action):
        assert action != 1
        self.steps += 1
        return self._see(), 1.0, self.steps >= 5, False, {}

    def render(self):
        return np.full((32, 48, 3), 40 * self.steps, np.uint8)


def test_masked_dictionaries_are_filmed(tmp_path):
    gymnasium.register("Drawn-v99", Drawn)
    try:
        policy = untrained(tmp_path / "run", tiny("dna", "Drawn-v99"))
        film = Film(policy, 0)
        frames = list(film.frames())
    finally:
        del gymnasium.registry["Drawn-v99"]
    assert (film.whole, film.score, film.fps, len(frames)) == (True, 5.0, 10, 5 + 10)
    (p,), _ = distribution_of(
        policy, policy.opinion(torch.zeros(1, 16, dtype=torch.uint8)).pi[0].numpy()
    )
    assert len(p) == 3


@pytest.mark.parametrize("draws", [lambda env: None, gymnasium.Env.render])
def test_what_draws_nothing_is_one_line(tmp_path, capsys, draws):
    class Plain(Drawn):
        render = draws

    gymnasium.register("Plain-v99", Plain)
    try:
        untrained(tmp_path / "run", tiny("dna", "Plain-v99"))
        code = main(["record", str(tmp_path / "run")])
    finally:
        del gymnasium.registry["Plain-v99"]
    said = capsys.readouterr().err
    assert code == 2
    assert "Plain-v99: has no render_mode='rgb_array' pictures to record" in said
    assert said.count("\n") == 1


# ── the saved policy ───────────────────────────────────────────────────────────────────────


def test_both_values_are_those_of_the_networks(tmp_path):
    policy = untrained(tmp_path / "run", settings("CartPole-v1"))
    obs = torch.randn(5, 4)
    pi, value, other = policy.opinion(obs)
    x = policy.preprocess(obs)
    with torch.inference_mode():
        assert torch.equal(pi, policy.network(x).pi)
        assert torch.equal(value, policy.network(x).value)
        assert torch.equal(other, policy.value(x))
    tree = json.loads((tmp_path / "run" / "policy" / "policy.json").read_text())
    assert (tree["format"], tree["value"]) == (2, True)


def test_a_policy_of_format_1_is_read_and_acts_the_same(tmp_path):
    policy = untrained(tmp_path / "run", settings("CartPole-v1"))
    files = read_folder(tmp_path / "run" / "policy")
    tree = json.loads(files["policy.json"]) | {"format": 1}
    del tree["value"]
    tensors = tensors_from(files["policy.safetensors"], "policy")
    kept = {k: v for k, v in tensors.items() if not k.startswith("value/")}
    assert len(kept) < len(tensors)
    old = {"policy.json": json.dumps(tree).encode(), "policy.safetensors": tensor_bytes(kept)}
    write_folder(tmp_path / "old", old)
    loaded = load_policy(tmp_path / "old")
    obs = torch.randn(5, 4)
    assert torch.equal(loaded.parameters(obs), policy.parameters(obs))
    assert loaded.opinion(obs).other is None


def test_the_poster_of_a_film_is_not_a_blank_frame():
    blank = np.full((64, 128, 3), 20, np.uint8)
    blank[:, 64:] = np.random.default_rng(0).integers(0, 255, (64, 64, 3))  # the panel
    shown = blank.copy()
    shown[16:48, 16:48] = 230
    film = mp4([blank] * 12 + [shown] * 12, fps=10)
    picture = np.asarray(Image.open(io.BytesIO(poster(film))))
    assert abs(picture.astype(int) - shown).mean() < abs(picture.astype(int) - blank).mean()
    assert poster(film[:200]) is None
    assert poster(mp4([blank] * 3, fps=10)) is not None
