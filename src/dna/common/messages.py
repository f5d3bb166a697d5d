"""One-line messages for refused settings, arguments and attributes.

Each names the key and, where one is known, what to use instead: the nearest key, or this
package's term for an argument of Stable-Baselines3 and similar libraries.
"""

import difflib
import json
import re
import signal
import traceback
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from dna.common.errors import BadInput

#: Longest message: it may have to quote what the user typed.
LIMIT = 190
#: Tags of unions in pydantic's locations, which are not keys of a setting.
_TAGS = ("number", "linear", "known", "custom")
#: Settings that may be a linear schedule → an example of its start.
_SCHEDULES = {"learning_rate": "1e-3", "epsilon": "0.2", "entropy_bonus": "0.01"}
#: Pydantic's words → plain English, applied in this order.
_PLAIN = (
    (r"\bValue error, ", ""),
    (r"\bInput should be ", "must be "),
    (r"\b(String|Tuple) should have ", "must have "),
    (r"\bString should match pattern ", "must match the pattern "),
    (r"\bInput tag .* does not match any of the expected tags: ", "kind must be one of "),
    (r"\bUnable to extract tag using discriminator ", "must have the key "),
    (r"\bmust be a valid (integer|number|boolean), .*", r"must be a valid \1"),
    (r"\bmust be a valid integer", "must be an integer"),
    (r"\bmust be a valid (tuple|array|list)", "must be a list"),
    (r"\bmust be a valid ", "must be a "),
    (r"\bgreater than or equal to ", "at least "),
    (r"\bless than or equal to ", "at most "),
    (r" after validation, not .*", ""),
)
#: Settings that null switches off.
_MAY_BE_OFF = ("normalize_observation", "normalize_reward", "warm_up", "repeat_penalty")


def printable(text: str) -> str:
    """Make text safe for one line of a terminal: escape control characters and line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(text: str, limit: int = LIMIT) -> str:
    """Make text safe for one line, and bound its length."""
    safe = printable(text[:limit])
    return safe if len(safe) <= limit and len(text) <= limit else safe[: limit - 1] + "…"


def text_of(error: BaseException) -> str:
    """Return the message of an exception, even one whose `__str__` fails."""
    try:
        return str(error)
    except BaseException as failure:
        if isinstance(failure, KeyboardInterrupt) and _is_ctrl_c(failure):
            raise
        return f"its message cannot be shown ({type(failure).__name__} in __str__)"


def _is_ctrl_c(interrupt: KeyboardInterrupt) -> bool:
    """Whether the handler of Ctrl-C raised this, and not the `__str__` that was called."""
    frames = [frame for frame, _ in traceback.walk_tb(interrupt.__traceback__)]
    handler = getattr(signal.getsignal(signal.SIGINT), "__code__", None)
    return len(frames) == 1 or frames[-1].f_code is handler


def quoted(text: str) -> str:
    """Quote what the user typed, shortened to leave room for the reason."""
    return shown(text, 60)


def nearest(word: str, known: list[str]) -> str:
    """Return `; did you mean 'epochs'?`, or the known words when none is near."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"; did you mean '{close[0]}'?"
    return f"; known: {', '.join(known)}" if 0 < len(known) <= 12 else ""


def plain_english(message: str) -> str:
    """Put a pydantic message, or a Typer message that contains one, into plain English."""
    for pattern, words in _PLAIN:
        message = re.sub(pattern, words, message)
    return message


def elsewhere(key: str, tree: Mapping[str, Any], wrong: str = "") -> str:
    """Return `; did you mean 'returns.gamma'?` for a key of a section or another library.

    `wrong` is the path at which the key was refused, if that is not the key itself; a key of
    the same phase or section is preferred.
    """
    wrong = wrong or key
    section = wrong.split(".")[0]
    paths = [path for path in _paths(tree) if path != wrong]
    paths.sort(key=lambda path: path.split(".")[0] != section)
    for name in (key, ALIASES.get(key)):
        for path in paths:
            if path.split(".")[-1] == name:
                return f"; did you mean '{quoted(path)}'?"
    return f"; {SB3_SETTINGS[key]}" if key in SB3_SETTINGS else ""


def misspelled(key: str, tree: Mapping[str, Any]) -> str:
    """Return `; did you mean 'returns.gamma'?` for `gama`; empty if no key is near."""
    paths = {path.split(".")[-1]: path for path in reversed(_paths(tree)) if path != key}
    close = difflib.get_close_matches(key, list(paths), n=1, cutoff=0.7)
    return f"; did you mean '{quoted(paths[close[0]])}'?" if close else ""


def not_a_setting(path: str, value: Any, tree: Mapping[str, Any]) -> str:
    """Return the message for a Python value that cannot be written to a settings file."""
    if not callable(value):
        return (
            f"{quoted(path)}: given a {type(value).__name__}, must be a number, a string, "
            "True, False, None, a list or a dict"
        )
    last = path.split(".")[-1]
    name = ALIASES.get(last, last)
    if name not in _SCHEDULES:
        text = (
            f"only {_listed(list(_SCHEDULES))} have schedules, which are linear: "
            "{'start': 1e-3, 'end': 0.0}"
        )
    else:
        paths = [known for known in _paths(tree) if known.split(".")[-1] == name]
        key = path if path in paths else (paths or [name])[0]
        start = _SCHEDULES[name]
        text = (
            f"for a linear schedule use {key.replace('.', '__')}"
            f"={{'start': {start}, 'end': 0.0}}"
        )
    return shown(f"{quoted(path)}: a function is not a setting; {text}")


def _listed(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def one_line(error: ValidationError, tree: Mapping[str, Any]) -> str:
    """Return pydantic's first error with the dotted path: `policy.sgd.epochs: given -1, …`."""
    first = error.errors(include_url=False)[0]
    message = plain_english(first["msg"])
    path = quoted(dotted_path(first["loc"], tree))
    if first["type"] == "value_error":
        return shown(f"{path}.{message}" if path else message)
    if first["type"] == "json_invalid":
        return "settings: contain text that is not valid Unicode"
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        known = dict.fromkeys(path.split(".")[-1] for path in _paths(tree))
        known.pop(key, None)
        wrong = dotted_path(first["loc"], tree)
        hint = elsewhere(key, tree, wrong)
        if not hint and wrong == key:
            hint = misspelled(key, tree)
        hint = hint or nearest(key, list(known))
        return shown(f"{path}: no such setting{hint}")
    if first["type"] == "missing":
        return f"{path}: must be given"
    given = quoted(json.dumps(first["input"], default=str))
    if path.startswith("env.options."):
        message = "must be a string, a number, true, false or null"
    elif path in _MAY_BE_OFF:
        message += "; null switches it off"
    return shown(f"{path}: given {given}, {message[0].lower()}{message[1:]}")


def dotted_path(location: tuple[int | str, ...], tree: Mapping[str, Any]) -> str:
    """Return pydantic's location as the user writes it: phases by name, no union tags."""
    parts = list(location)
    if parts[:2] == ["env", "options"]:
        return ".".join(str(part) for part in parts[:3])
    if len(parts) > 1 and parts[0] == "phases" and isinstance(parts[1], int):
        phases = tree["phases"]
        phase = phases[parts[1]] if isinstance(phases, list) else None
        name = phase.get("name") if isinstance(phase, dict) else None
        start = f"phases.{parts[1]}"
        if isinstance(name, str) and parts[-1] != "name":
            start = name
        parts = [start, *parts[3:]]
    return ".".join(str(part) for part in parts if part not in _TAGS)


def _paths(tree: Mapping[str, Any]) -> list[str]:
    """Every dotted path of a tree as the user writes it; the tree may be invalid."""
    phases = tree.get("phases")
    named = [p for p in phases if isinstance(p, dict)] if isinstance(phases, list) else []
    rest = {key: value for key, value in tree.items() if key != "phases"}
    sections = {str(p.get("name", "phases")): p for p in named} | rest
    return [path for key, value in sections.items() for path in _below(key, value)]


def _below(path: str, node: Any) -> list[str]:
    if not isinstance(node, dict):
        return [path]
    return [path, *(inner for key in node for inner in _below(f"{path}.{key}", node[key]))]


# ── names of other libraries ─────────────────────────────────────────────────────────────────

#: Argument of another library → the key here.
ALIASES: dict[str, str] = {
    "lr": "learning_rate",
    "n_steps": "horizon",
    "num_steps": "horizon",
    "n_envs": "agents",
    "num_envs": "agents",
    "total_timesteps": "interactions",
    "gae_lambda": "lambda_pi",
    "ent_coef": "entropy_bonus",
    "clip_range": "epsilon",
    "clip_coef": "epsilon",
    "n_epochs": "epochs",
    "update_epochs": "epochs",
    "batch_size": "minibatch",
    "max_grad_norm": "max_gradient_norm",
    "vf_coef": "value_weight",
}
#: Arguments of SB3's constructors that are not settings here.
SB3_SETTINGS: dict[str, str] = {
    "policy": "there is no policy class to choose; the encoder follows from the observations",
    "policy_kwargs": "set network.width, network.depth, or pass encoder=",
    "net_arch": "set network.width and network.depth",
    "features_extractor_class": "pass it as encoder=",
    "device": "use learn(how=dna.How(device=…)), or --device",
    "verbose": "use learn(progress=…), or --quiet",
    "tensorboard_log": "TensorBoard files are in the run's folder, folder= or --out",
    "monitor_wrapper": "scores are kept without one",
    "stats_window_size": "scores are means of the last 100 episodes",
    "target_kl": "there is no early stop by KL; set fewer epochs",
    "clip_range_vf": "values are not clipped here",
    "vf_coef": "values are learned in a phase of their own; set value.sgd.learning_rate",
    "use_sde": "there is no gSDE here",
    "sde_sample_freq": "there is no gSDE here",
    "rollout_buffer_class": "there is one kind of rollout",
    "rollout_buffer_kwargs": "there is one kind of rollout",
    "_init_setup_model": "networks are made when they are first used",
}
#: Arguments of SB3's methods.
SB3_ARGUMENTS: dict[str, str] = {
    "progress_bar": "use progress=, which is on by default",
    "log_interval": "every iteration is logged, in metrics.jsonl of the folder",
    "tb_log_name": "TensorBoard files are in the run's folder; name it with folder=",
    "reset_num_timesteps": "learn() continues; make a new agent to start again",
    "action_masks": "use action_mask=",
    "custom_objects": "use encoder= for an encoder of your own",
    "device": "use learn(how=dna.How(device=…))",
    "print_system_info": "see machine.json in the folder",
    "force_reset": "environments are reset when a run begins",
}
#: Callbacks of SB3; a user's own callback class matches the last one.
SB3_CALLBACKS: dict[str, str] = {
    "EvalCallback": "call agent.evaluate() after learn(); the training score is agent.score",
    "CheckpointCallback": "runs save themselves; how often is learn(how=dna.How("
    "checkpoint_every=…))",
    "StopTrainingOnRewardThreshold": "give a class with on_iteration_end(self, state, row) "
    "that returns False when row.score is high enough",
    "ProgressBarCallback": "use progress=, which is on by default",
    "CallbackList": "pass a list of objects with on_iteration_end(self, state, row)",
    "BaseCallback": "give a class with on_iteration_end(self, state, row); returning False "
    "stops the run",
}
#: Methods and properties of SB3's models.
SB3_ATTRIBUTES: dict[str, str] = {
    "get_env": "the environment is yours; evaluate() makes new ones",
    "get_vec_normalize_env": "normalization is part of the policy",
    "set_env": "load the agent with env=",
    "env": "the environment is yours; evaluate() makes new ones",
    "policy": "act with predict(); dna.hub.load(FOLDER) gives the policy with its network",
    "get_parameters": "save() writes them as safetensors; dna.hub.load(FOLDER) reads them",
    "set_parameters": "dna.load(FOLDER) loads those of a run",
    "logger": "the logged rows are in .history",
    "set_logger": "pass callback= to learn()",
    "device": "use learn(how=dna.How(device=…))",
    "n_envs": "use .config.agents",
    "gamma": "use .config.returns.gamma",
    "learning_rate": "it is in .config.phases",
    "set_random_seed": "pass seed= when the agent is made",
    "action_probability": "dna.hub.load(FOLDER) gives the policy with its distribution",
}


def refuse_arguments(where: str, others: Mapping[str, Any]) -> None:
    """Raise for the first argument that a method does not have, with a hint if one is known."""
    for name in others:
        hint = f"; {SB3_ARGUMENTS[name]}" if name in SB3_ARGUMENTS else ""
        raise BadInput(f"{where}: no argument '{name:.60}'{hint}")


def refuse_sb3_callback(callback: Any) -> None:
    """Refuse a Stable-Baselines3 callback (object or class), naming what to use instead."""
    kind = callback if isinstance(callback, type) else type(callback)
    for base in kind.__mro__:
        if base.__module__.startswith("stable_baselines3.") and base.__name__ in SB3_CALLBACKS:
            raise BadInput(
                f"callback: {kind.__name__:.40} is for Stable-Baselines3; here "
                f"{SB3_CALLBACKS[base.__name__]}"
            )


def no_attribute(kind: str, name: str) -> AttributeError:
    """Return Python's AttributeError, with what to use instead where that is known."""
    hint = f"; {SB3_ATTRIBUTES[name]}" if name in SB3_ATTRIBUTES else ""
    return AttributeError(f"'{kind}' object has no attribute '{name}'{hint}")
