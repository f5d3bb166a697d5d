"""What users of Stable-Baselines3 type by habit and is no name of ours: what it is here.

Names that have one of ours behind them are `messages.ALIASES`; these need more words.
"""

from collections.abc import Mapping
from typing import Any

from dna.common.errors import BadInput

#: Arguments of SB3's constructors that are no settings here.
SETTINGS: dict[str, str] = {
    "policy": "there is no policy class to choose; the encoder follows from the observations",
    "policy_kwargs": "set network.width, network.depth, or pass encoder=",
    "net_arch": "set network.width and network.depth",
    "features_extractor_class": "pass it as encoder=",
    "device": "it is learn(how=dna.How(device=…)), or --device",
    "verbose": "it is learn(progress=…), or --quiet",
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
ARGUMENTS: dict[str, str] = {
    "progress_bar": "it is progress=, which is on",
    "log_interval": "every iteration is logged, in metrics.jsonl of the folder",
    "tb_log_name": "TensorBoard files are in the run's folder; name it with folder=",
    "reset_num_timesteps": "learning again goes on; make a new agent to begin anew",
    "action_masks": "it is action_mask=",
    "custom_objects": "it is encoder= for an encoder of your own",
    "device": "it is learn(how=dna.How(device=…))",
    "print_system_info": "machine.json in the folder says it",
    "force_reset": "environments are reset when a run begins",
}
#: Methods and properties of SB3's models.
ATTRIBUTES: dict[str, str] = {
    "get_env": "the environment is yours; evaluate() makes new ones",
    "get_vec_normalize_env": "normalization is part of the policy",
    "set_env": "load the agent with env=",
    "env": "the environment is yours; evaluate() makes new ones",
    "policy": "act with predict(); dna.hub.load(FOLDER) gives the policy with its network",
    "get_parameters": "save() writes them as safetensors; dna.hub.load(FOLDER) reads them",
    "set_parameters": "dna.load(FOLDER) has those of a run",
    "logger": "rows of the log are .history",
    "set_logger": "pass callback= to learn()",
    "device": "it is learn(how=dna.How(device=…))",
    "n_envs": "it is .config.agents",
    "gamma": "it is .config.returns.gamma",
    "learning_rate": "it is in .config.phases",
    "set_random_seed": "pass seed= when the agent is made",
    "action_probability": "dna.hub.load(FOLDER) gives the policy with its distribution",
}


def refuse_arguments(where: str, others: Mapping[str, Any]) -> None:
    """One line for the first argument that there is none of."""
    for name in others:
        hint = f"; {ARGUMENTS[name]}" if name in ARGUMENTS else ""
        raise BadInput(f"{where}: no argument '{name:.60}'{hint}")


def missing(kind: str, name: str) -> AttributeError:
    """As Python says it, with what to use instead where that is known."""
    hint = f"; {ATTRIBUTES[name]}" if name in ATTRIBUTES else ""
    return AttributeError(f"'{kind}' object has no attribute '{name}'{hint}")
