"""Folders for the hub: what is in them, that they can be read without trust, and uploads."""

import json
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

import dna.hub
from dna.agents.hub import FILES, Packing, card, package, push
from dna.cli import main
from dna.common.errors import BadInput, MissingExtra, StorageFailure
from dna.common.storage import read_folder, write_folder
from dna.common.tensor_files import tensor_bytes, tensors_from
from dna.runs.folder import RunFolder
from dna.runs.policy import load_policy
from dna.runs.setup import How
from dna.runs.train import train
from helpers import bytes_of, tiny

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import huggingface_hub

HOW = How(tensorboard=False, threads=1)


class FakeApi:
    """Remembers what it was told."""

    told: ClassVar[list] = []
    error = None
    endpoint = "https://example.org"

    def __init__(self, **_):
        pass

    def create_repo(self, name, **options):
        if self.error:
            raise self.error
        self.told.append((name, options))

    def upload_folder(self, *, folder_path, allow_patterns, **options):
        found = sorted(
            str(p.relative_to(folder_path)) for p in folder_path.rglob("*") if p.is_file()
        )
        self.told.append((options["repo_id"], sorted(allow_patterns), found))


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "HfApi", FakeApi)
    monkeypatch.setattr(FakeApi, "told", [])
    monkeypatch.setattr(FakeApi, "error", None)
    return FakeApi


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub") / "run"
    train(tiny("dna"), 0, folder, how=HOW)
    return folder


@pytest.fixture(scope="module")
def packed(run):
    folder = run.parent / "cartpole-dna"
    assert (
        main(["export", str(run), "--format", "hub", "--out", str(folder), "--episodes", "4"])
        == 0
    )
    return folder


def test_a_folder_holds_what_it_says_and_no_pickle(run, packed):
    found = {str(path.relative_to(packed)) for path in packed.rglob("*") if path.is_file()}
    assert found == set(FILES)
    assert bytes_of(packed, "config.json") == bytes_of(run, "config.json")
    assert bytes_of(packed, "policy/policy.safetensors") == bytes_of(
        run, "policy/policy.safetensors"
    )
    assert json.loads((packed / "metrics.json").read_text())["iterations"] == 3
    assert b"ftyp" in (packed / "replay.mp4").read_bytes()[:12]
    said = json.loads((packed / "eval.json").read_text())
    assert said["policy"]["episodes"] == 4
    texts = [p.read_text() for p in packed.rglob("*") if p.suffix in (".json", ".md")]
    assert not any(str(run.parent) in text for text in texts)


def test_the_hub_reads_the_card(packed):
    model = huggingface_hub.ModelCard.load(packed / "README.md")
    assert model.data.library_name == "ppo-dna"
    assert {"reinforcement-learning", "dna", "CartPole-v1"} <= set(model.data.tags)
    result = model.data.eval_results[0]
    summary = json.loads((packed / "eval.json").read_text())["policy"]
    assert result.dataset_name == "CartPole-v1"
    assert result.metric_value == f"{summary['mean']:.2f} +/- {summary['std']:.2f}"
    assert f"| CartPole-v1 | 4 | {summary['mean']:.2f} ± {summary['std']:.2f} |" in model.text


def test_a_name_cannot_break_out_of_the_card(packed):
    policy = load_policy(packed / "policy")
    name = 'a"]\n---\n# <script>alert(1)</script> !!python/object:os.system'
    env = policy.env.model_copy(update={"id": name})
    odd = replace(policy, env=env, about={"algorithm": name})
    evaluation = json.loads((packed / "eval.json").read_text())
    text = card("x", odd, evaluation, [])
    model = huggingface_hub.ModelCard(text)
    assert model.data.tags[-1] == name
    assert "<script>" not in model.text


def test_a_folder_is_evaluated_like_the_run(run, packed, tmp_path, api, capsys):
    scores, copy = [], shutil.copytree(packed, tmp_path / "copy")
    for folder in (run, copy):
        assert main(["eval", str(folder), "--episodes", "3", "--json"]) == 0
        scores.append(json.loads(capsys.readouterr().out)["policy"])
    assert scores[0] == scores[1]
    # Its eval.json is no longer the card's, and names a folder of this machine.
    assert main(["push", str(copy), "me/cartpole"]) == 2
    assert "written by a later `dna eval`" in capsys.readouterr().err
    assert api.told == []


def spoiled(packed, tmp_path, change):
    """A package whose policy is changed, with a manifest that fits."""
    folder = shutil.copytree(packed, tmp_path / "spoiled")
    files = read_folder(folder / "policy")
    change(files)
    write_folder(folder / "policy", files)
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clip": {}}, "clip"),
        ({"clip": True}, "clip"),
        ({"gain": {"a": 1}}, "gain"),
        ({"gain": None}, "gain"),
        ({"gain": float("nan")}, "gain"),
        ({"gain": 0}, "gain"),
        ({"gain": 1e39}, "gain"),
        ({"clip": 1e308}, "clip"),
        ({"clip": -1}, "clip"),
        ({"clip": float("inf")}, "clip"),
        ({"clip": 10**400}, "digits"),
        ({"projection": "x"}, "projection"),
        ({"value": 3}, "value"),
        ({"value": False}, "value/"),
        ({"about": [1]}, "about"),
        ({"format": [2]}, "format"),
        ({"env": 3}, "env"),
        ({"network": []}, "network"),
        ({"observation": {"kind": "vector", "shape": [-4], "dtype": "float32"}}, "shape"),
        ({"observation": {"kind": "vector", "shape": [True], "dtype": "float32"}}, "shape"),
        ({"observation": {"kind": "image", "shape": [4], "dtype": "float32"}}, "shape"),
        ({"observation": {"kind": "odd", "shape": [4], "dtype": "float32"}}, "kind"),
        ({"observation": {"kind": "vector", "shape": [4], "dtype": {}}}, "dtype"),
        ({"action": {"kind": "categorical", "sizes": [0]}}, "sizes"),
        ({"action": {"kind": "categorical", "sizes": []}}, "sizes"),
        ({"action": {"kind": "categorical", "sizes": ["a"]}}, "sizes"),
        ({"action": {"kind": "gaussian", "sizes": [1, 2]}}, "sizes"),
    ],
    ids=str,
)
def test_a_description_of_wrong_types_is_one_line(packed, tmp_path, change, said, capsys):
    def describe(files):
        files["policy.json"] = json.dumps(json.loads(files["policy.json"]) | change).encode()

    folder = spoiled(packed, tmp_path, describe)
    assert main(["eval", str(folder), "--episodes", "1"]) == 6
    line = capsys.readouterr().err
    assert said in line
    assert (line.count("\n"), len(line) < 400) == (1, True)


BIAS = "policy/value_head.bias"


@pytest.mark.parametrize(
    ("name", "tensor", "said"),
    [
        (BIAS, torch.tensor([torch.nan]), "is not of finite numbers"),
        ("preprocess/scale", torch.full((4,), torch.inf), "is not of finite numbers"),
        (BIAS, torch.tensor([1e300], dtype=torch.float64), "is not of finite numbers"),
        ("preprocess/scale", torch.full((4,), 1e39, dtype=torch.float64), "is not of finite"),
        (BIAS, torch.tensor([1]), "is not of finite numbers"),
        (BIAS, torch.zeros(2), r"is \(2,\), not \(1,\)"),
        (BIAS, None, "is missing"),
        ("value/value_head.bias", None, "is missing"),
        ("policy/extra", torch.zeros(1), "belongs to no layer"),
        ("extra", torch.zeros(1), "belongs to no part"),
        ("optimizer/0", torch.zeros(1), "belongs to no part"),
    ],
)
def test_tensors_that_are_not_those_of_the_policy_are_refused(
    packed, tmp_path, name, tensor, said
):
    def replace_tensor(files):
        tensors = tensors_from(files["policy.safetensors"], "test")
        tensors.pop(name, None)
        if tensor is not None:
            tensors[name] = tensor
        files["policy.safetensors"] = tensor_bytes(tensors)

    folder = spoiled(packed, tmp_path, replace_tensor)
    with pytest.raises(StorageFailure, match=said):
        dna.hub.load(folder)
    assert main(["export", str(folder), "--no-env", "--out", str(tmp_path / "x.onnx")]) == 6


def test_loading_needs_the_policy_alone(packed, tmp_path):
    write_folder(
        tmp_path / "bare" / "policy",
        bytes_of(packed / "policy", "policy.json", "policy.safetensors"),
    )
    policy = dna.hub.load(tmp_path / "bare")
    assert policy.env.id == "CartPole-v1"
    assert torch.equal(
        policy.network.policy_head.weight,
        dna.hub.load(packed).network.policy_head.weight,
    )
    assert dna.hub.find(tmp_path / "bare") == RunFolder(tmp_path / "bare")
    again = package(tmp_path / "bare", tmp_path / "again", Packing(episodes=1, film=False))
    assert again.notes == ("no replay.mp4: not requested",)
    assert not (tmp_path / "again" / "config.json").exists()
    with pytest.raises(BadInput, match="no run here"):
        dna.hub.load(tmp_path)


def test_what_has_no_pictures_has_a_note(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "av", None)
    words = ["export", str(run), "--format", "hub", "--out", str(tmp_path / "out")]
    assert main([*words, "--episodes", "1"]) == 0
    assert "note: no replay.mp4: recording needs" in capsys.readouterr().out
    assert "replay.mp4" not in (tmp_path / "out" / "README.md").read_text()
    assert main(words) == 2
    assert "is not empty" in capsys.readouterr().err


# ── uploads ───────────────────────────────────────────────────────────────────────────────


def test_pushing_a_folder_uploads_its_files_and_no_others(packed, api, capsys):
    (packed / "secret.txt").write_text("mine")
    try:
        assert main(["push", str(packed), "me/cartpole", "--private"]) == 0
    finally:
        (packed / "secret.txt").unlink()
    assert capsys.readouterr().out == "https://example.org/me/cartpole\n"
    created, uploaded = api.told
    assert created == ("me/cartpole", {"private": True, "exist_ok": True})
    assert uploaded[1] == sorted(FILES)


def test_pushing_a_run_makes_the_folder_first(run, api, capsys):
    assert main(["push", str(run), "me/from-run", "--episodes", "2"]) == 0
    assert api.told[1][2] == sorted(FILES)
    assert not (run / "README.md").exists()


@pytest.mark.parametrize(
    "name", ["me", "me/", "../x", "me/a/b", "me/a b", "-x/y", "a/../b", ""]
)
def test_a_bad_name_is_refused_before_anything(packed, api, name, capsys):
    assert main(["push", str(packed), "--", name]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert api.told == []


def test_trouble_with_the_hub_is_one_line(packed, api, capsys):
    refused = RuntimeError("no")
    refused.response = SimpleNamespace(status_code=401)
    for error, words in (
        (refused, "log in with `hf auth login`"),
        (
            ConnectionError("the cable\nis out"),
            "not uploaded (ConnectionError: the cable is out)",
        ),
    ):
        api.error = error
        assert main(["push", str(packed), "me/cartpole"]) == 6
        said = capsys.readouterr().err
        assert words in said
        assert said.count("\n") == 1


def test_the_real_library_refuses_without_a_token(packed, monkeypatch, capsys):
    """Against an address where nobody listens, with nobody logged in."""
    real = huggingface_hub.HfApi
    monkeypatch.setattr(
        huggingface_hub,
        "HfApi",
        lambda **kw: real(endpoint="http://127.0.0.1:9", token=False, **kw),
    )
    assert main(["push", str(packed), "me/cartpole"]) == 6
    assert capsys.readouterr().err.count("\n") == 1


def test_links_are_never_uploaded(packed, api, tmp_path):
    for name in ("README.md", "policy/policy.json", "replay.mp4"):
        copy = tmp_path / name.replace("/", "-")
        for path in packed.rglob("*"):
            target = copy / path.relative_to(packed)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_file() and str(path.relative_to(packed)) != name:
                target.write_bytes(path.read_bytes())
        (copy / name).unlink(missing_ok=True)
        (copy / name).symlink_to(packed / name)
        with pytest.raises(StorageFailure, match="is a link"):
            push(copy, "me/cartpole")
    assert api.told == []


def test_without_the_library_the_extra_is_named(packed, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["push", str(packed), "me/cartpole"]) == MissingExtra.exit_code
    assert "pip install 'ppo-dna[hub]'" in capsys.readouterr().err


def test_a_run_is_not_pushed_as_it_is(run, api):
    with pytest.raises(BadInput, match="not ready"):
        push(run, "me/run")


# ── loading a folder as an agent ──────────────────────────────────────────────────────────

FRESH = """
import json, sys, dna
agent = dna.load(sys.argv[1])
obs = [[0.1 * i, -0.2, 0.02 * i, 0.3] for i in range(-20, 20)]
found = agent.predict(obs, deterministic=True)[0].tolist()
print(json.dumps([type(agent).__name__, found, agent.evaluate(6).scores]))
"""


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_agent_of_a_folder_acts_and_scores_like_that_of_the_run(run, packed):
    """In fresh processes, and not like one that has learned nothing."""
    seen = [
        json.loads(subprocess.check_output([sys.executable, "-c", FRESH, str(folder)]))
        for folder in (run, packed)
    ]
    assert seen[0] == seen[1]
    weights = [
        dna.load(folder)._policy(may_reset=True).network.state_dict()
        for folder in (run, packed)
    ]
    first = dna.DNA("CartPole-v1", preset=tiny("dna"))._policy(may_reset=True)
    for name in weights[0]:
        assert torch.equal(weights[0][name], weights[1][name])
    head = "policy_head.weight"
    assert not torch.equal(weights[1][head], first.network.state_dict()[head])


def test_an_agent_of_a_folder_is_saved_as_one(packed, tmp_path):
    dna.load(packed).save(tmp_path / "saved")
    found = [dna.load(f).evaluate(4).scores for f in (packed, tmp_path / "saved")]
    assert found[0] == found[1]


def test_a_folder_does_not_go_on_and_stays_as_it_is(packed, tmp_path, capsys):
    copy = shutil.copytree(packed, tmp_path / "copy")
    before = files_of(copy)
    assert main(["resume", str(copy)]) == 2
    said = capsys.readouterr().err
    assert "holds a policy, but no checkpoint to resume from; `dna train" in said
    assert said.count("\n") == 1
    same = dna.DNA("CartPole-v1", preset=tiny("dna"), folder=copy)
    for agent in (dna.load(copy), dna.load(copy, folder=copy), same):
        for interactions in (None, 64):
            with pytest.raises(BadInput, match=r"no checkpoint to resume|other settings"):
                agent.learn(interactions, progress=False)
    assert dna.load(copy).evaluate(2).mean > 0
    assert files_of(copy) == before
