"""Settings refuse what cannot work, in one line that names the key; `tweak` changes them.

Configurations are the data half of sections 4.2 to 4.4 and appendix A. Their digest names a
run, so it must not depend on the process and must depend on every setting.
"""

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from dna.common.errors import BadInput, DnaError, UnknownKey
from dna.config import (
    SGD,
    Atari,
    Auxiliary,
    Config,
    Distil,
    EnvConfig,
    Joint,
    Linear,
    Policy,
    Procgen,
    RepeatPenalty,
    Value,
    json_tree,
    resolve,
)
from dna.config.overrides import (
    at,
    differences,
    digest,
    from_tree,
    nearest,
    parse_overrides,
    tweak,
    without,
)
from dna.config.presets import for_environment
from dna.runs.folder import read_config

SMALL, LARGE = SGD(epochs=1, minibatch=512), SGD(epochs=2, minibatch=2048)
DNA = Config(phases=(Policy(sgd=LARGE), Value(sgd=SMALL), Distil(sgd=SMALL)))
PPO = Config(phases=(Joint(sgd=SMALL),))
PPG = Config(phases=(Policy(sgd=LARGE), Value(sgd=SMALL), Auxiliary(sgd=SMALL)))
EVERYTHING = Config(
    phases=(
        Policy(sgd=SGD(epochs=2, minibatch=64, learning_rate=Linear(start=1e-3, end=1e-5))),
        Value(sgd=SGD(epochs=1, minibatch=64, max_gradient_norm=None)),
        Distil(sgd=SGD(epochs=1, minibatch=64), every=2),
        Auxiliary(sgd=SGD(epochs=1, minibatch=64), every=4),
    ),
    env=EnvConfig(id="CartPole-v1", max_episode_steps=500, options={"g": 9.8, "name": "x"}),
    horizon=16,
    agents=8,
)
ATARI = Config(
    phases=PPO.phases,
    env=EnvConfig(id="ALE/Pong-v5", atari=Atari()),
    repeat_penalty=RepeatPenalty(),
)
PROCGEN = Config(phases=PPO.phases, env=EnvConfig(id="procgen/maze", procgen=Procgen()))
ALL = {
    "dna": DNA,
    "ppo": PPO,
    "ppg": PPG,
    "everything": EVERYTHING,
    "atari": ATARI,
    "procgen": PROCGEN,
}


def leaves(config: Config) -> dict[str, Any]:
    """Every dotted path `tweak` knows, with its value."""
    tree = json_tree(config)
    found: dict[str, Any] = {}

    def walk(node: Any, path: list[str]) -> None:
        if isinstance(node, dict):
            for key, child in node.items():
                walk(child, [*path, key])
        else:
            found[".".join(path)] = node

    for phase in tree.pop("phases"):
        walk(phase, [phase["name"]])
    walk(tree, [])
    return found


def complaint(*pairs: str, config: Config = DNA) -> str:
    """What the user reads about these `key=value` words, which must be refused."""
    with pytest.raises(BadInput) as caught:
        tweak(config, **parse_overrides(list(pairs)))
    assert is_readable(str(caught.value))
    return str(caught.value)


def is_readable(message: str) -> bool:
    return message.isprintable() and 0 < len(message) <= 200


# ── models ────────────────────────────────────────────────────────────────────────────────


def test_a_configuration_cannot_be_changed_in_place():
    for model, field in ((DNA, "horizon"), (DNA.phases[0], "epsilon"), (DNA.returns, "gamma")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(model, field, 1)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("policy.sgd.epochs", "2"),
        ("policy.sgd.epochs", True),
        ("policy.sgd.epochs", 2.5),
        ("policy.epsilon", "0.2"),
        ("policy.epsilon", True),
        ("returns.gamma", None),
        ("env.id", 3),
        ("horizon", 128.5),
        ("normalize_reward", False),
        ("warm_up", "off"),
    ],
)
def test_types_are_not_guessed(path, value):
    with pytest.raises(BadInput) as caught:
        tweak(DNA, **{path: value})
    assert str(caught.value).startswith(f"{path}: given {json.dumps(value)}, ")


@pytest.mark.parametrize(
    "pair",
    [
        "returns.gamma=1.01",
        "returns.lambda_pi=-0.1",
        "horizon=0",
        "agents=65537",
        "policy.sgd.minibatch=1",
        "policy.sgd.epochs=-1",
        "policy.sgd.learning_rate=0",
        "policy.sgd.max_gradient_norm=0",
        "policy.sgd.adam_eps=0",
        "policy.epsilon=-0.1",
        "policy.every=2",
        "policy.trains=value",
        "policy.name=Policy",
        "distil.every=0",
        "distil.beta=-1",
        "distil.constraint=l2",
        "value.weight=0",
        "network.encoder=resnet",
        "network.channels=9",
        "normalize_observation.clip=0",
        "normalize_observation.clip=1e308",
        "returns.gamma=NaN",
        "returns.gamma=Infinity",
        "policy.epsilon=1e999",
    ],
)
def test_values_out_of_range_are_refused_with_their_key(pair):
    key = pair.partition("=")[0]
    shown = key.replace("policy.name", "phases.0.name")
    assert complaint(pair).startswith(f"{shown}: given ")


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("policy.sgd.epochs=-1", "policy.sgd.epochs: given -1, must be at least 0"),
        ("policy.sgd.epochs=x", 'policy.sgd.epochs: given "x", must be an integer'),
        ("policy.sgd.epochs=1.5", "policy.sgd.epochs: given 1.5, must be an integer"),
        ("returns.gamma=2", "returns.gamma: given 2, must be at most 1"),
        ("returns.gamma=x", 'returns.gamma: given "x", must be a number'),
        ("value.weight=0", "value.weight: given 0, must be greater than 0"),
        (
            "network.activation=gelu",
            "network.activation: given \"gelu\", must be 'tanh' or 'relu'",
        ),
        ("warm_up=3", "warm_up: given 3, must be an object; null switches it off"),
        ("env.id=3", "env.id: given 3, must be a string"),
        ("phases=x", 'phases: given "x", must be a list'),
        ("phases=[]", "phases: given [], must have at least 1 item"),
        ("phases=[{}]", "phases.0: given {}, must have the key 'kind'"),
        (
            'phases=[{"kind":"x"}]',
            'phases.0: given {"kind": "x"}, kind must be one of '
            "'policy', 'joint', 'value', 'distil', 'auxiliary'",
        ),
        (
            "network.encoder=custom:1",
            'network.encoder: given "custom:1", must match the pattern '
            "'^custom:[A-Za-z_][A-Za-z0-9_]{0,63}$'",
        ),
    ],
)
def test_a_refused_value_is_told_in_plain_english(pair, said):
    assert complaint(pair) == said


def test_unknown_keys_in_a_tree_are_refused():
    tree = json_tree(DNA) | {"xyzzy": "cpu"}
    with pytest.raises(BadInput, match=r"^xyzzy: no such setting$"):
        from_tree(tree)
    tree = json_tree(DNA) | {"device": "cpu"}
    with pytest.raises(BadInput, match=r"^device: no such setting; use .* --device$"):
        from_tree(tree)
    tree = json_tree(DNA)
    tree["phases"][1]["sgd"]["epoch"] = 1
    with pytest.raises(
        BadInput, match=r"^value\.sgd\.epoch: no such setting; did you mean 'epochs'\?$"
    ):
        from_tree(tree)
    with pytest.raises(BadInput, match=r"^gama: no such setting; did you mean 'returns.gamma'"):
        from_tree(json_tree(DNA) | {"gama": 1})


def test_a_missing_setting_is_named():
    tree = json_tree(DNA)
    del tree["phases"][2]["sgd"]["epochs"]
    with pytest.raises(BadInput, match=r"^distil\.sgd\.epochs: must be given$"):
        from_tree(tree)


@pytest.mark.parametrize("name", ALL)
def test_json_gives_the_same_configuration_back(name):
    config = ALL[name]
    again = from_tree(json.loads(json.dumps(json_tree(config))))
    assert again == config
    assert digest(again) == digest(config)


def test_what_is_derived_follows_the_phases():
    assert (DNA.algorithm, PPO.algorithm, PPG.algorithm) == ("dna", "ppo", "ppg")
    assert EVERYTHING.algorithm == "policy+value+distil+auxiliary"
    assert [c.two_networks for c in (DNA, PPO, PPG)] == [True, False, True]
    assert [c.replay_length for c in (DNA, PPO, PPG, EVERYTHING)] == [0, 0, 32, 4]
    assert DNA.batch == 128 * 128


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ((Value(sgd=SMALL), Policy(sgd=SMALL, name="value")), "phases: two phases are named"),
        ((Joint(sgd=SMALL, name="returns"),), "phases: a phase cannot be named 'returns'"),
        ((Joint(sgd=SMALL), Value(sgd=SMALL)), "phases: joint trains one network"),
        ((Joint(sgd=SMALL), Distil(sgd=SMALL)), "phases: joint trains one network"),
        ((Policy(sgd=SMALL),), "phases: nothing trains the value estimate"),
        ((Policy(sgd=SMALL), Distil(sgd=SMALL)), "phases: nothing trains the value estimate"),
    ],
)  # fmt: skip
def test_contradictory_phases_are_refused(phases, message):
    with pytest.raises(BadInput) as caught:
        from_tree({"phases": [phase.model_dump() for phase in phases]})
    assert str(caught.value).startswith(message)
    assert is_readable(str(caught.value))


@pytest.mark.parametrize(
    ("config", "pair", "message"),
    [
        (DNA, "value.sgd.minibatch=32768", "value.sgd.minibatch: 32768 is larger than"),
        (DNA, "value.sgd.minibatch=1000", "value.sgd.minibatch: 1000 does not divide"),
        (DNA, "horizon=100", "policy.sgd.minibatch: 2048 does not divide"),
        (PPG, "aux.sgd.minibatch=1048576", "aux.sgd.minibatch: 1048576 is larger than"),
        (PPG, "aux.sgd.minibatch=3", "aux.sgd.minibatch: 3 does not divide"),
        (DNA, "warm_up.low=1001", "warm_up.low: given 1001, must be at most high = 1000"),
    ],
)
def test_contradictory_numbers_are_refused_with_the_key(config, pair, message):
    assert complaint(pair, config=config).startswith(message)


def test_a_replay_counts_all_of_its_rollouts():
    assert (
        at(tweak(PPG, **{"aux.sgd.minibatch": 524288}), "aux.sgd.minibatch") == 32 * 128 * 128
    )
    assert "horizon·agents·aux.every = 524288" in complaint("aux.sgd.minibatch=3", config=PPG)


@pytest.mark.parametrize(
    ("progress", "value"), [(-1.0, 4.0), (0.0, 4.0), (0.25, 3.5), (1.0, 2.0), (1.5, 2.0)]
)
def test_a_line_moves_from_start_to_end_and_stays_there(progress, value):
    assert resolve(Linear(start=4.0, end=2.0), progress) == pytest.approx(value)
    assert resolve(0.3, progress) == 0.3


# ── tweak ─────────────────────────────────────────────────────────────────────────────────


def test_tweak_changes_the_named_phase_and_nothing_else():
    changed = tweak(DNA, **{"value.sgd.epochs": 7, "returns.lambda_pi": 0.8})
    assert differences(DNA, changed) == {
        "value.sgd.epochs": (1, 7),
        "returns.lambda_pi": (0.95, 0.8),
    }
    assert isinstance(changed.phases[1], Value)
    assert DNA.phases[1].sgd.epochs == 1, "the original is as it was"


def test_tweak_leaves_what_it_is_given_alone():
    """A section and then a key inside it: the caller's dictionary is not written to."""
    given = {"every": 2, "b_small": 2}
    found = tweak(DNA, **{"noise": given, "noise.every": 1})
    assert (found.noise.every, given["every"]) == (1, 2)


def test_a_phase_can_be_renamed_and_addressed_by_its_new_name():
    changed = tweak(DNA, **{"policy.name": "actor", "actor.epsilon": 0.1})
    assert (changed.phases[0].name, changed.phases[0].epsilon) == ("actor", 0.1)


@pytest.mark.parametrize("section", ["normalize_observation", "normalize_reward", "warm_up"])
def test_an_optional_section_is_switched_off_and_on_again(section):
    off = tweak(DNA, **{section: None})
    assert getattr(off, section) is None
    first_key = next(iter(at(DNA, section)))
    on = tweak(off, **{f"{section}.{first_key}": at(DNA, f"{section}.{first_key}")})
    assert getattr(on, section) == getattr(DNA, section)


def test_a_learning_rate_becomes_a_line_and_a_number_again():
    line = tweak(DNA, **{"policy.sgd.learning_rate.start": 1e-3})
    assert line.phases[0].sgd.learning_rate == Linear(start=1e-3, end=0.0)
    assert tweak(line, **{"policy.sgd.learning_rate": 2.5e-4}) == DNA
    assert complaint("policy.sgd.learning_rate.end=1e-5") == (
        "policy.sgd.learning_rate.start: must be given"
    )


def test_environment_options_take_any_key():
    changed = tweak(DNA, **{"env.options.difficulty": 3, "env.options.mode": "hard"})
    assert changed.env.options == {"difficulty": 3, "mode": "hard"}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("policy.sgd.epoch", "epochs"),
        ("policy.epsilom", "epsilon"),
        ("polcy.epsilon", "policy"),
        ("horizn", "horizon"),
        ("returns.lambda_p", "lambda_pi"),
        ("normalize_reward.clp", "clip"),
        ("policy.sgd.learning_rate.strat", "start"),
        ("network.enc", "encoder"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(key, meant):
    with pytest.raises(UnknownKey) as caught:
        tweak(DNA, **{key: 1})
    assert str(caught.value).startswith(f"{key}: no '")
    assert str(caught.value).endswith(f"; did you mean '{meant}'?")


def test_where_nothing_is_near_the_known_words_are_listed():
    assert nearest("zzz", ["start", "end"]) == "; known: start, end"
    assert nearest("zzz", []) == ""


def test_a_key_inside_a_single_value_is_unknown():
    assert complaint("policy.sgd.epochs.first=1") == (
        "policy.sgd.epochs.first: 'epochs' is a single value and has no keys inside"
    )


def test_without_removes_one_phase():
    assert [phase.kind for phase in without(DNA, "distil").phases] == ["policy", "value"]
    with pytest.raises(UnknownKey, match="did you mean 'distil'"):
        without(DNA, "distill")
    with pytest.raises(BadInput, match="nothing trains the value"):
        without(DNA, "value")


def test_differences_name_sections_that_only_one_side_has():
    off = tweak(DNA, normalize_reward=None)
    assert differences(DNA, off) == {
        "normalize_reward.clip": (5.0, None),
        "normalize_reward.episode_end": ("reset", None),
    }
    assert differences(DNA, DNA) == {}
    assert differences(DNA, without(DNA, "distil"))["phases"] == (
        ["policy", "value", "distil"],
        ["policy", "value"],
    )


def test_overrides_are_json_or_else_plain_words():
    pairs = ["a=1", "b=1e-3", "c=null", "d=true", "e=word", 'f="2"', "g=x=y", "h=", "i=[1, 2]"]
    expected = {"a": 1, "b": 1e-3, "c": None, "d": True, "e": "word", "f": "2", "g": "x=y"}
    assert parse_overrides(pairs) == expected | {"h": "", "i": [1, 2]}


@pytest.mark.parametrize("pairs", [["gamma"], ["=1"], ["a=1", "a=2"], ["\x1b[31m\n"]])
def test_words_that_are_no_overrides_are_refused(pairs):
    with pytest.raises(BadInput) as caught:
        parse_overrides(pairs)
    assert is_readable(str(caught.value))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "{}", '{"phases": 3}', "[" * 100_000])
def test_a_bad_file_is_refused_in_one_line_with_its_name(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(text)
    with pytest.raises(DnaError) as caught:
        read_config(Path("config.json"))
    assert str(caught.value).startswith("config.json: ")
    assert is_readable(str(caught.value))


# ── digest ────────────────────────────────────────────────────────────────────────────────


def test_the_digest_is_the_same_in_another_process():
    code = (
        "import json, sys; from dna.config.overrides import digest, from_tree\n"
        "config = from_tree(json.loads(sys.stdin.read()))\n"
        "print(digest(config), digest(config, 3))"
    )
    text = json.dumps(json_tree(EVERYTHING))
    run = subprocess.run(
        [sys.executable, "-c", code], input=text, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == [digest(EVERYTHING), digest(EVERYTHING, 3)]


def test_the_digest_does_not_depend_on_the_order_of_keys():
    tree = json_tree(DNA)
    assert digest(from_tree(dict(reversed(tree.items())))) == digest(DNA)
    first = tweak(DNA, **{"env.options.a": 1, "env.options.b": 2})
    second = tweak(DNA, **{"env.options.b": 2, "env.options.a": 1})
    assert first == second
    assert digest(first) == digest(second)


def test_the_seed_is_part_of_a_runs_digest():
    digests = {digest(DNA), *(digest(DNA, seed) for seed in range(100))}
    assert len(digests) == 101
    assert all(len(name) == 12 for name in digests)


WORDS = [
    "other", "minibatch", "per_dimension", "logit_mse", "features", "skip", "authors",
    "carry_last", "policy", "impala", "relu", "terminal", "minimal", "hidden", "easy",
    "ALE/other", "procgen/other", "bfloat16", "acting",
]  # fmt: skip
#: What a phase *is* cannot be changed; everything else can.
FIXED = ("kind", "trains", "reads")
#: Not beside the settings of another kind of environment.
WORLDS = ("env.atari", "env.procgen", "env.max_episode_steps")


def another(config: Config, path: str, value: Any) -> Config | None:
    """A valid configuration with another value at this path, if there is one."""
    numbers = [value * 2, value / 2, value // 2] if isinstance(value, int | float) else []
    for candidate in [*numbers, *WORDS, 2, 0.5, [2, 3], {}]:
        try:
            changed = tweak(config, **{path: candidate})
        except BadInput:
            continue
        if changed != config:
            return changed
    return None


@pytest.mark.parametrize("name", ["everything", "ppo", "atari", "procgen"])
def test_every_setting_changes_the_digest(name):
    config = ALL[name]
    digests = {digest(config)}
    for path, value in leaves(config).items():
        changed = another(config, path, value)
        if changed is None:
            foreign = config.env.id is not None and path in WORLDS
            once = path.endswith(".every") and value == 1
            once |= path == "returns.values" and config.two_networks
            assert path.endswith(FIXED) or once or foreign, path
            continue
        assert digest(changed) not in digests, path
        digests.add(digest(changed))
    assert len(digests) > 25


# ── the process around it ─────────────────────────────────────────────────────────────────


def test_settings_import_neither_torch_nor_an_environment():
    code = (
        "import sys, dna.config, dna.config.overrides\n"
        "print(sorted({'torch', 'gymnasium', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


# ── hostile input ─────────────────────────────────────────────────────────────────────────

HOSTILE = [
    "NaN", "Infinity", "-1", "-1e400", "1e400", "9" * 50, "9" * 5000, "null", "true", '""', "",
    "[]", "{}", "[[[1]]]", '{"start": {"start": 1}}', "[" * 300 + "]" * 300, "[" * 5000,
    '{"a": null}', '"\\u0000"', '"\\ud800"', '"line\\nbreak"', '"\\u001b[31m"', "\x00\x07",
    "\u202e", "\u2028", "é漢字🙂", "x" * 500, "0.1.2", "1_000", "None", "--", "=", "kl",
    "policy", "value",
]  # fmt: skip
SUFFIXES = [
    "",
    "",
    "",
    ".x",
    ".",
    ".start",
    ".low",
    "..",
    ".\n",
    ".options.a.b",
    "." + "k" * 300,
]
PATHS = [
    *leaves(DNA), "phases", "phases.0", "policy", "policy.sgd", "env", "env.options",
    "env.options.seed", "warm_up", "returns", "nothing", "\x1b",
]  # fmt: skip
PAIRS = st.builds(
    "{}{}={}".format,
    st.sampled_from(PATHS),
    st.sampled_from(SUFFIXES),
    st.one_of(st.sampled_from(HOSTILE), st.text(max_size=20)),
)


@settings(deadline=None, max_examples=1000)
@given(pairs=st.lists(PAIRS, min_size=1, max_size=3))
def test_any_override_gives_a_configuration_or_one_readable_line(pairs):
    line = None
    try:
        config = tweak(DNA, **parse_overrides(pairs))
    except BadInput as error:
        line = str(error)
    assert from_tree(json_tree(config)) == config if line is None else is_readable(line), line


@pytest.mark.parametrize(
    "pairs",
    [
        ["env.options.a.b=1"],
        ["phases=5", "policy.sgd.epochs=1"],
        ["phases=[1]", "policy.sgd.epochs=1"],
        ["policy.kind=other", "policy.epsilon=0.1"],
        ["policy.kind=[]", "policy.epsilon=0.1"],
        ["policy.name=5", "policy.sgd.epochs=1"],
    ],
)
def test_a_broken_override_before_another_is_refused(pairs):
    assert complaint(*pairs)


@pytest.mark.parametrize("kind", ['"a\\nb"', '"\\u001b[31m"'])
def test_control_characters_of_a_kind_are_not_repeated(kind):
    assert complaint(f"policy.kind={kind}").startswith("policy")


@pytest.mark.parametrize(
    "pair", ["z" * 400 + "=1", "policy." + "k" * 400 + "=1", "policy.name=" + "x" * 400]
)
def test_a_very_long_word_still_gives_a_short_line(pair):
    assert complaint(pair)


@pytest.mark.parametrize("value", ['"\\ud800"', "[" * 300 + "]" * 300])
def test_a_value_that_is_no_json_is_refused_with_its_key(value):
    assert complaint(f"env.id={value}").startswith("env.id: ")


@pytest.mark.parametrize("key", ["x", "linear", "number"])
def test_a_bad_option_is_named_as_it_was_written(key):
    assert complaint(f"env.options.{key}=[1]").startswith(f"env.options.{key}: given [1], ")


@pytest.mark.parametrize("path", ["policy.sgd.epoch", "nothing", "policy.sgd.epochs.x"])
def test_reading_an_unknown_path_is_refused(path):
    with pytest.raises(BadInput):
        at(DNA, path)


def test_published_runs_keep_their_names():
    """The digests in results/ are today's: later sections are silent while they are off."""
    results = sorted((Path(__file__).parents[3] / "results").glob("*.csv"))
    rows = [row for path in results for row in csv.DictReader(path.read_text().splitlines())]
    runs = {(r.get("preset"), r["env"], r["algorithm"], int(r["seed"])): r for r in rows}
    assert len(runs) >= 20
    for (name, env_id, algorithm, seed), row in runs.items():
        config = for_environment(env_id, None if name else algorithm, name)
        changes = {"interactions": int(row["budget"])} if row.get("budget") else {}
        assert row["digest"] == digest(tweak(config, **changes), seed)
