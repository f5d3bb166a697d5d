"""Stable-Baselines3's PPO as policies of ours: the same distributions, nothing unpickled."""

import io
import json
import os
import pickle  # noqa: TID251  it is what must never be loaded
import time
import warnings
import zipfile

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import dna
from dna.agents.hub import load
from dna.cli import main
from dna.common.errors import BadInput, StorageFailure
from dna.evaluation.evaluate import evaluate
from dna.evaluation.sb3 import heads_of, import_model, read_model, read_tensors
from dna.networks.distributions import Gaussian

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from stable_baselines3 import DQN, PPO


class Screens(gymnasium.Env):
    """Random pictures; channels first or last."""

    def __init__(self, shape=(44, 36, 3), action=None):
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space = action or spaces.Discrete(4)
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._seen(), {}

    def _seen(self):
        return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)

    def step(self, action):
        self.t += 1
        return self._seen(), 1.0, self.t >= 5, False, {}


class Switches(gymnasium.Env):
    """A few bits to set."""

    observation_space = spaces.Discrete(6)
    action_space = spaces.MultiBinary(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 2, {}

    def step(self, action):
        return int(self.np_random.integers(6)), 1.0, True, False, {}


@pytest.fixture(scope="module", autouse=True)
def _registered():
    for name, env in {"Screens": Screens, "Switches": Switches}.items():
        gymnasium.register(f"{name}-v0", env)
    yield
    for name in ("Screens", "Switches"):
        del gymnasium.registry[f"{name}-v0"]


def trained(env_id, path, policy="MlpPolicy", **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PPO(
            policy, env_id, n_steps=32, batch_size=16, n_epochs=2, learning_rate=1e-2,
            seed=0, device="cpu", policy_kwargs=kwargs or None,
        )  # fmt: skip
        model.learn(64)
        model.save(path)
    return model


def states(env_id, count=50):
    env = gymnasium.make(env_id)
    env.observation_space.seed(0)
    drawn = [env.observation_space.sample() for _ in range(count)]
    if (
        isinstance(env.observation_space, spaces.Box)
        and env.observation_space.dtype.kind == "f"
    ):
        drawn = [np.clip(x, -3, 3) for x in drawn]
    return np.stack(drawn)


def ours(policy, obs):
    with torch.no_grad():
        out = policy.network(policy.preprocess(torch.from_numpy(obs)))
    return out.pi, out.value


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("CartPole-v1", {}),
        ("CartPole-v1", {"activation_fn": torch.nn.ReLU, "net_arch": [32, 32, 32]}),
        ("Pendulum-v1", {}),
        ("Pendulum-v1", {"net_arch": {"pi": [48], "vf": [16, 16]}}),
    ],
)
def test_an_mlp_says_what_sb3_says(tmp_path, env_id, kwargs):
    model = trained(env_id, tmp_path / "model.zip", **kwargs)
    assert (
        main(
            ["import-sb3", str(tmp_path / "model.zip"), env_id, "--out", str(tmp_path / "ours")]
        )
        == 0
    )
    policy, obs = load(tmp_path / "ours"), states(env_id)
    pi, _ = ours(policy, obs)
    with torch.no_grad():
        theirs = model.policy.get_distribution(torch.from_numpy(obs)).distribution
    if isinstance(policy.distribution, Gaussian):
        assert torch.allclose(pi, torch.cat([theirs.mean, theirs.stddev.log()], 1), atol=1e-6)
    else:
        assert torch.allclose(pi.log_softmax(-1), theirs.logits, atol=1e-6)
    acted = policy.act(torch.from_numpy(obs), np.random.default_rng(0), deterministic=True)
    wanted = model.predict(obs, deterministic=True)[0]
    space = gymnasium.make(env_id).action_space
    if isinstance(space, spaces.Box):
        acted = np.clip(acted.numpy(), space.low, space.high)
    assert np.asarray(acted).reshape(wanted.shape) == pytest.approx(wanted, abs=1e-6)


def test_episodes_have_the_same_scores(tmp_path):
    from dna.common.randomness import integer

    model = trained("CartPole-v1", tmp_path / "model.zip")
    import_model(tmp_path / "model.zip", "CartPole-v1", tmp_path / "ours")
    policy = load(tmp_path / "ours")
    found = evaluate(policy, policy.env, episodes=3, seed=1, deterministic=True)
    wanted = []
    for agent in range(3):
        env, score, over = gymnasium.make("CartPole-v1"), 0.0, False
        obs, _ = env.reset(seed=integer(1, "eval/env", agent))
        while not over:
            obs, reward, ended, cut, _ = env.step(
                int(model.predict(obs, deterministic=True)[0])
            )
            score, over = score + reward, ended or cut
        wanted.append(score)
    assert sorted(found.scores) == sorted(wanted)


@pytest.mark.parametrize("shape", [(44, 36, 3), (2, 36, 44)])
def test_a_cnn_and_its_value_are_sb3s(tmp_path, shape):
    gymnasium.register("Pictures-v0", lambda: Screens(shape))
    try:
        model = trained("Pictures-v0", tmp_path / "model.zip", "CnnPolicy")
        import_model(tmp_path / "model.zip", "Pictures-v0", tmp_path / "ours")
        obs = states("Pictures-v0", 9)
    finally:
        del gymnasium.registry["Pictures-v0"]
    last = obs if shape[2] < shape[0] else np.moveaxis(obs, 1, -1)
    first = np.moveaxis(last, -1, 1)
    pi, value = ours(load(tmp_path / "ours"), np.ascontiguousarray(last))
    with torch.no_grad():
        seen = torch.from_numpy(np.ascontiguousarray(first))
        theirs = model.policy.get_distribution(seen).distribution
        wanted = model.policy.predict_values(seen)[:, 0]
    assert torch.allclose(pi.log_softmax(-1), theirs.logits, atol=1e-6)
    assert torch.allclose(value, wanted, atol=1e-6)


def test_layers_that_older_versions_share(tmp_path):
    rng = torch.Generator().manual_seed(0)
    shapes = {"mlp_extractor.shared_net.0": (16, 4), "mlp_extractor.shared_net.2": (16, 16)}
    shapes |= {"action_net": (2, 16), "value_net": (1, 16)}
    weights = {f"{n}.weight": torch.randn(s, generator=rng) for n, s in shapes.items()}
    weights |= {f"{n}.bias": torch.randn(s[0], generator=rng) for n, s in shapes.items()}
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as model:
        model.writestr("data", "{}")
        model.writestr("policy.pth", torch_file(weights))
    import_model(tmp_path / "model.zip", "CartPole-v1", tmp_path / "ours")
    obs = states("CartPole-v1")
    pi, value = ours(load(tmp_path / "ours"), obs)
    hidden = torch.from_numpy(obs)
    for name in list(shapes)[:2]:
        hidden = (hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]).tanh()
    for found, name in ((pi, "action_net"), (value[:, None], "value_net")):
        wanted = hidden @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        assert torch.allclose(found, wanted, atol=1e-5)


def test_bits_and_one_hot_observations(tmp_path):
    model = trained("Switches-v0", tmp_path / "model.zip")
    import_model(tmp_path / "model.zip", "Switches-v0", tmp_path / "ours")
    pi, _ = ours(load(tmp_path / "ours"), np.eye(6, dtype=np.float32))
    with torch.no_grad():
        theirs = model.policy.get_distribution(torch.arange(6)).distribution
    probabilities = pi.reshape(6, 3, 2).softmax(-1)[..., 1]
    assert torch.allclose(probabilities, theirs.probs, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_an_agent_of_it_is_refused_with_what_reads_it(tmp_path):
    trained("CartPole-v1", tmp_path / "model.zip")
    import_model(tmp_path / "model.zip", "CartPole-v1", tmp_path / "out")
    for kind in (dna, dna.PPO):
        with pytest.raises(BadInput, match=r"without a run.*dna\.hub\.load.*`dna eval"):
            kind.load(tmp_path / "out")


def test_what_cannot_be_taken_is_one_line(tmp_path):
    def refused(words, env_id="CartPole-v1", name="model.zip"):
        with pytest.raises((BadInput, StorageFailure), match=words) as error:
            import_model(tmp_path / name, env_id, tmp_path / "ours")
        assert "\n" not in str(error.value)
        assert not (tmp_path / "ours").exists()

    path = tmp_path / "model.zip"
    DQN("MlpPolicy", "CartPole-v1", buffer_size=10).save(path)
    refused("not a PPO model of MlpPolicy or CnnPolicy")
    trained("CartPole-v1", path, net_arch=[64, 32])
    refused("needs one width")
    trained("CartPole-v1", path, activation_fn=torch.nn.ELU)
    refused("'ELU' is neither")
    for steps in (-5, True, 2.5):
        model = trained("CartPole-v1", path)
        model.num_timesteps = steps
        model.save(path)
        refused("num_timesteps: .* is not a number of interactions")
    trained("CartPole-v1", path)
    refused(r"does not fit the environment \((… )?[^ ]", "Acrobot-v1")
    refused("of another kind than the environment's", "Pendulum-v1")
    refused("cannot read image", "Screens-v0")
    refused("cannot read packed", "Taxi-v4")
    (tmp_path / "stats.pkl").write_bytes(pickle.dumps({"mean": 0}))
    refused("is a pickle, as VecNormalize saves", name="stats.pkl")
    PPO("MlpPolicy", "Pendulum-v1", use_sde=True, n_steps=8, batch_size=8).save(path)
    refused("gSDE", "Pendulum-v1")
    refused("No such file", name="nothing.zip")
    (tmp_path / "ours").mkdir()
    with pytest.raises(BadInput, match="already exists"):
        import_model(path, "CartPole-v1", tmp_path / "ours")


# ── the reader ────────────────────────────────────────────────────────────────────────────


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def torch_file(content):
    file = io.BytesIO()
    torch.save(content, file)  # noqa: TID251
    return file.getvalue()


def rewritten(data, **changes):
    """A torch file with some of its inner files replaced."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            new.writestr(name, changes.get(name.rpartition("/")[2], old.read(name)))
    return file.getvalue()


def test_tensors_of_every_shape_are_read_exactly():
    rng = torch.Generator().manual_seed(0)
    wanted = {
        "a": torch.randn(3, 4, 5, generator=rng),
        "b": torch.randn(6, 2, generator=rng).t(),  # not contiguous
        "c": torch.randn(7, generator=rng)[2:5],  # amid its storage
        "d": torch.tensor(3.5),
        "e": torch.randn(2, 2, dtype=torch.float64, generator=rng),
        "f": torch.arange(5),
        "g": torch.randn(2, 3, 4, 5, generator=rng).to(memory_format=torch.channels_last),
    }
    found = read_tensors(torch_file(wanted), "file")
    assert set(found) == set(wanted)
    for name, tensor in wanted.items():
        assert np.array_equal(found[name], tensor.numpy()), name
        assert found[name].dtype == tensor.numpy().dtype


def test_a_long_name_of_an_activation_does_not_hang(tmp_path):
    path = tmp_path / "model.zip"
    trained("CartPole-v1", path)
    with zipfile.ZipFile(path) as old:
        weights = old.read("policy.pth")
    with zipfile.ZipFile(path, "w") as new:
        new.writestr("policy.pth", weights)
        new.writestr("data", json.dumps({"policy_kwargs": {"activation_fn": "." * 95_000}}))
    began = time.monotonic()
    with pytest.raises(BadInput, match="is neither Tanh nor ReLU"):
        import_model(path, "CartPole-v1", tmp_path / "ours")
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("way", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_member_that_sb3_would_not_compress_so_is_refused(tmp_path, way):
    with zipfile.ZipFile(tmp_path / "model.zip", "w", way) as model:
        model.writestr("data", "{}")
        model.writestr("policy.pth", "")
    with pytest.raises(StorageFailure, match="data is compressed in an unknown way"):
        read_model(tmp_path / "model.zip")


def test_a_zip_of_very_many_files_is_refused_before_they_are_listed():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(9_000):
            archive.writestr(str(number), b"")
    with pytest.raises(StorageFailure, match="holds too many files"):
        read_tensors(file.getvalue(), "file")


@pytest.mark.parametrize("protocol", range(6))
def test_no_program_in_a_pickle_is_run(tmp_path, protocol):
    canary = tmp_path / "canary"
    calls = [(os.system, f"touch {canary}"), (eval, f"open({str(canary)!r}, 'w')"), (exec, "1")]
    good = torch_file({"a": torch.zeros(2)})
    for call in calls:
        for content in (Evil(*call), {"a": Evil(*call)}, [Evil(*call)]):
            program = pickle.dumps(content, protocol=protocol)
            with pytest.raises(StorageFailure, match="nothing in it was executed"):
                read_tensors(rewritten(good, **{"data.pkl": program}), "file")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"a": [1, 2]}, "instruction"),
        ({"a": 1}, "dictionary of tensors"),
        ({"a": torch.zeros(2, dtype=torch.float16)}, "HalfStorage"),
        ({"a": torch.tensor([1.0, float("nan")])}, "not finite"),
        ({}, "dictionary of tensors"),
        ({"a": torch.zeros(0)}, "empty or larger than its storage"),
        ({"a": torch.zeros(1).expand(2**40)}, "empty or larger than its storage"),
        ({"a": torch.zeros(2**24 + 1)}, "larger than 67,108,864 bytes"),
    ],
)
def test_other_contents_are_refused(content, words):
    with pytest.raises(StorageFailure, match=words):
        read_tensors(torch_file(content), "file")


def test_a_lying_storage_is_refused():
    good = torch_file({"a": torch.zeros(4)})
    with pytest.raises(StorageFailure, match="has 4 bytes, its tensors need 16"):
        read_tensors(rewritten(good, **{"0": b"1234"}), "file")
    with pytest.raises(StorageFailure, match="has 32 bytes, its tensors need 16"):
        read_tensors(rewritten(good, **{"0": b"1" * 32}), "file")
    with pytest.raises(StorageFailure, match="little-endian"):
        read_tensors(rewritten(good, byteorder=b"big"), "file")
    program = zipfile.ZipFile(io.BytesIO(good)).read("archive/data.pkl")
    huge = program.replace(b"K\x04", b"J\xff\xff\xff\x7f")  # 4 elements → 2^31 − 1
    with pytest.raises(StorageFailure, match="larger than"):
        read_tensors(rewritten(good, **{"data.pkl": huge}), "file")
    assert program.count(b"K\x04") == 2  # of the storage, and of the tensor
    outside = program[::-1].replace(b"\x04K", b"\x05K", 1)[::-1]
    with pytest.raises(StorageFailure, match="damaged; nothing in it was executed"):
        read_tensors(rewritten(good, **{"data.pkl": outside}), "file")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"\x80\x02" + b")q\x00" + b"h\x00\x86q\x00" * 60 + b".", "a container twice"),
        (b"\x80\x02" + b"N" + b"\x85" * 100_000 + b".", "instruction NONE"),
        (b"\x80\x02" + b"(" * 200_000 + b".", "dictionary of tensors"),
        (b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "bytearray"),
        (b"\x80\x02ctorch\nTensor\nJ\xff\xff\xff\x7f\x85R.", "torch Tensor"),
        (b"\x80\x02h\x07.", "damaged"),
        (b"\x80\x02q\x07.", "damaged"),
        (b"\x80\x02}", "damaged"),
        (b"", "damaged"),
    ],
)
def test_a_pickle_of_another_form_never_reaches_torch(monkeypatch, program, words):
    """torch's restricted unpickler would hang or allocate gigabytes on some of these."""
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("was called"))
    good = torch_file({"a": torch.zeros(4)})
    with pytest.raises(StorageFailure, match=words) as error:
        read_tensors(rewritten(good, **{"data.pkl": program}), "file")
    assert "\n" not in str(error.value)
    assert "nothing in it was executed" in str(error.value)


def test_random_damage_never_raises_anything_else(tmp_path):
    trained("CartPole-v1", tmp_path / "model.zip")
    data = bytearray((tmp_path / "model.zip").read_bytes())
    inner = zipfile.ZipFile(io.BytesIO(data)).read("policy.pth")
    rng, refused = np.random.default_rng(0), 0
    for _ in range(300):
        broken = bytearray(inner)
        for _ in range(int(rng.integers(1, 20))):
            broken[int(rng.integers(len(broken)))] = int(rng.integers(256))
        try:
            read_tensors(bytes(broken), "file")
        except StorageFailure:
            refused += 1
    program = zipfile.ZipFile(io.BytesIO(inner)).read("archive/data.pkl")
    for _ in range(1000):
        broken = bytearray(program)
        for _ in range(int(rng.integers(1, 6))):
            broken[int(rng.integers(len(broken)))] = int(rng.integers(256))
        try:
            read_tensors(rewritten(inner, **{"data.pkl": bytes(broken)}), "file")
        except StorageFailure:
            refused += 1
    assert refused > 800


def test_a_weight_without_axes_is_refused(tmp_path):
    trained("CartPole-v1", tmp_path / "model.zip")
    _, tensors = read_model(tmp_path / "model.zip")
    with pytest.raises(BadInput, match=r"'action_net\.bias' is a single number"):
        heads_of(tensors | {"action_net.bias": np.array(0.0)}, "model.zip")


def test_what_is_in_base64_is_never_decoded(tmp_path):
    trained("CartPole-v1", tmp_path / "model.zip")
    source = zipfile.ZipFile(tmp_path / "model.zip")
    tree = json.loads(source.read("data"))
    for value in tree.values():
        if isinstance(value, dict):
            value[":serialized:"] = "not base64 at all"
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as new:
        new.writestr("data", json.dumps(tree))
        new.writestr("policy.pth", source.read("policy.pth"))
    about, tensors = read_model(tmp_path / "other.zip")
    assert about["gamma"] == 0.99
    assert tensors["action_net.weight"].shape == (2, 64)
