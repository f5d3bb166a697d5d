"""Import the weights of a Stable-Baselines3 PPO model as a saved policy.

SB3's zip contains `policy.pth`, written by `torch.save`, and `data`, JSON in which whatever is
not a plain value is a pickle in base64. Those pickles are never decoded: only the plain values
are used, such as the printed name of the activation. Nothing in the file is executed.

| SB3 | here |
|---|---|
| `mlp_extractor.policy_net`, `action_net`, `log_std` | the policy's encoder, its head, log σ |
| `mlp_extractor.value_net`, `value_net` | the value network, where the shapes allow it |
| `features_extractor.cnn` (CnnPolicy), `value_net` | encoder of both heads: V_π is SB3's V |
"""

import io
import pickletools
import re
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from dna.common.errors import BadInput, StorageFailure
from dna.common.storage import JSON_LIMIT, parse_json, read
from dna.config import SGD, Atari, Config, EnvConfig, Joint, Network, Policy, Value
from dna.config.environments import ATARI
from dna.envs import Making, make
from dna.envs.protocol import close
from dna.envs.specs import ActionSpec, ObservationSpec
from dna.networks.networks import Networks
from dna.runs.policy import save_policy

Array = npt.NDArray[Any]
Layers = list[tuple[Array, Array]]

#: Limits on `policy.pth`, its pickle and the number of tensors; real models stay far below.
MAX_WEIGHT_BYTES = 2**26
MAX_PICKLE_BYTES = 2**20
MAX_TENSORS = 1000
#: Limit on the files in a zip; zips inside of it count too.
MAX_MEMBERS = 8 * MAX_TENSORS
#: Limit on the whole zip: policy, optimizer state and settings.
MAX_MODEL_BYTES = 2 * MAX_WEIGHT_BYTES


def import_model(
    path: Path, env_id: str, out: Path, *, allow_import: bool = False
) -> list[str]:
    """Write the policy to `out`/policy and return the lines to print."""
    if out.exists() or out.is_symlink():
        raise BadInput(f"--out {out}: already exists; choose a new folder")
    settings, tensors = read_model(path)
    heads = heads_of(tensors, str(path))
    env = _environment(env_id)
    obs, action = _specs(env, allow_import)
    _check_fit(obs, action, heads)
    same_shapes = [w.shape for w, _ in heads.policy] == [w.shape for w, _ in heads.value]
    config = _config(
        env,
        _network(heads, _activation(settings, heads.kind)),
        two_networks=not heads.shared and same_shapes,
    )
    networks = Networks(config, obs, action)
    fill(networks, heads, obs, action)
    about: dict[str, Any] = {"algorithm": "ppo", "imported_from": "stable-baselines3"}
    if (steps := settings.get("num_timesteps")) is not None:
        if type(steps) is not int or steps < 0:
            raise BadInput(f"num_timesteps: {steps!r:.40} is not a number of interactions")
        about["interactions"] = steps
    save_policy(out / "policy", networks, config, about)
    lines = [f"{out}: policy of {path.name} for {env_id}"]
    if not heads.shared:
        lines.append(
            "SB3's value network has its own layers: V_π of this policy is 0; acting does "
            "not use it"
        )
    return lines


def _environment(env_id: str) -> EnvConfig:
    """Settings of SB3's Atari wrappers as far as they exist here; FireResetEnv does not."""
    if not env_id.startswith(ATARI):
        return EnvConfig(id=env_id)
    atari = Atari(sticky=0.0, actions="minimal", time="hidden", last_action="hidden")
    return EnvConfig(id=env_id, atari=atari)


def _specs(env: EnvConfig, allow_import: bool) -> tuple[ObservationSpec, ActionSpec]:
    vector = make(env, Making(1, (0,), 1, allow_import))
    try:
        return vector.observation, vector.action
    finally:
        close(vector)


def _activation(settings: dict[str, Any], kind: str) -> Literal["tanh", "relu"]:
    kwargs = settings.get("policy_kwargs")
    if not isinstance(kwargs, dict):
        kwargs = {}
    if str(kwargs.get("normalize_images", "True")) != "True":
        raise BadInput("network: normalize_images=False is not supported")
    printed = str(kwargs.get("activation_fn", "Tanh"))  # <class 'torch.nn.modules….ReLU'>
    name = printed.removesuffix("'>").rpartition(".")[2]
    if kind == "mlp" and name not in ("Tanh", "ReLU"):
        raise BadInput(f"network: the activation {name[:40]!r} is neither Tanh nor ReLU")
    return "relu" if name == "ReLU" else "tanh"


def _network(heads: "Heads", activation: Literal["tanh", "relu"]) -> Network:
    width = len(heads.policy[-1][1])
    if heads.kind == "nature":
        return Network(encoder="nature", width=width)
    return Network(encoder="mlp", width=width, depth=len(heads.policy), activation=activation)


def _config(env: EnvConfig, network: Network, *, two_networks: bool) -> Config:
    sgd = SGD(epochs=1, minibatch=128)
    phases = (Policy(sgd=sgd), Value(sgd=sgd)) if two_networks else (Joint(sgd=sgd),)
    return Config(env=env, phases=phases, network=network, normalize_observation=None)


# ── Reading the file ──────────────────────────────────────────────────────────────────────


def read_model(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return (settings, tensors) of an SB3 model file."""
    data = read(path, MAX_MODEL_BYTES)
    if data[:1] == b"\x80":
        raise BadInput(
            f"{path}: is a pickle, as VecNormalize saves, which could run any code when "
            "loaded; only a model's zip can be imported"
        )
    archive = Archive(data, str(path))
    if not {"policy.pth", "data"} <= set(archive.members):
        raise StorageFailure(
            f"{path}: not a Stable-Baselines3 model (it lacks policy.pth or data)"
        )
    settings = parse_json(archive.read("data", JSON_LIMIT), path)
    if not isinstance(settings, dict):
        raise StorageFailure(f"{path}: `data` is not a JSON object")
    if settings.get("use_sde"):
        raise BadInput(f"{path}: explores with gSDE, which is not supported")
    weights = archive.read("policy.pth", MAX_WEIGHT_BYTES)
    return settings, read_tensors(weights, f"{path}: policy.pth")


class Archive:
    """A zip file in memory whose member names are unique and stay inside of it."""

    #: What `zipfile` raises for damaged, encrypted or unsupported files.
    ERRORS = (
        zipfile.BadZipFile,
        zlib.error,
        RuntimeError,
        NotImplementedError,
        EOFError,
        OSError,
        ValueError,
        LookupError,
        OverflowError,
    )

    def __init__(self, data: bytes, source: str) -> None:
        self.source = source
        if data.count(b"PK\1\2") > MAX_MEMBERS:  # entries of its directory
            raise StorageFailure(f"{source}: holds too many files")
        try:
            self.zip = zipfile.ZipFile(io.BytesIO(data))
        except self.ERRORS:
            raise StorageFailure(f"{source}: not a zip file") from None
        listed = self.zip.infolist()
        self.members = {info.filename: info for info in listed}
        if len(self.members) < len(listed):
            raise StorageFailure(f"{source}: holds one name twice")
        for name in self.members:
            if name.startswith("/") or ".." in name or "\\" in name:
                raise StorageFailure(f"{source}: names a file outside of it")

    def read(self, name: str, limit: int) -> bytes:
        """Return one member; its declared and its real size must agree and respect `limit`."""
        info = self.members.get(name)
        if info is None:
            raise StorageFailure(f"{self.source}: has no {name}")
        if info.file_size > limit:
            raise StorageFailure(f"{self.source}: {name} is larger than {limit:,} bytes")
        # Others can claim gigabytes for their dictionaries, and fail with errors of their own.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise StorageFailure(f"{self.source}: {name} is compressed in an unknown way")
        try:
            with self.zip.open(info) as file:
                content = file.read(limit + 1)
        except self.ERRORS:
            raise StorageFailure(f"{self.source}: {name} is damaged") from None
        if len(content) != info.file_size:
            raise StorageFailure(f"{self.source}: {name} is not as large as declared")
        return content


def read_tensors(data: bytes, source: str) -> dict[str, Array]:
    """Return the arrays of a `torch.save` file that holds a dictionary of tensors.

    torch's restricted unpickler executes nothing, but a hostile file could still make it hang
    or allocate without limit. So the pickle must have the form that `torch.save` writes, every
    size is checked first, and torch reads a clean archive of the checked members.
    """
    archive = Archive(data, source)
    pickles = [n for n in archive.members if n.count("/") == 1 and n.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise StorageFailure(f"{source}: not a file of torch.save")
    root = pickles[0].removesuffix("data.pkl")
    order = f"{root}byteorder"
    if order in archive.members and archive.read(order, 16) != b"little":
        raise StorageFailure(f"{source}: its numbers are not little-endian")
    pickle = archive.read(pickles[0], MAX_PICKLE_BYTES)
    clean = io.BytesIO()
    with zipfile.ZipFile(clean, "w") as file:
        file.writestr("archive/data.pkl", pickle)
        file.writestr("archive/byteorder", b"little")
        file.writestr("archive/version", b"3\n")
        for key, size in _storage_sizes(pickle, source).items():
            content = archive.read(f"{root}data/{key}", MAX_WEIGHT_BYTES)
            if len(content) != size:
                raise StorageFailure(
                    f"{source}: data/{key} has {len(content):,} bytes, "
                    f"its tensors need {size:,}"
                )
            file.writestr(f"archive/data/{key}", content)
    clean.seek(0)
    try:
        # The only call to torch.load: restricted to tensors, on an archive checked above.
        tensors = torch.load(clean, map_location="cpu", weights_only=True)  # noqa: TID251
    except Exception:  # torch raises many kinds for a damaged file
        raise StorageFailure(f"{source}: damaged; nothing in it was executed") from None
    return {name: _array(tensor, source) for name, tensor in tensors.items()}


def _array(tensor: torch.Tensor, source: str) -> Array:
    elements = tensor.untyped_storage().nbytes() // tensor.element_size()
    if not 0 < tensor.numel() <= elements:  # an expanded view could be of any size
        raise StorageFailure(f"{source}: a tensor is empty or larger than its storage")
    array = tensor.numpy()
    if not np.isfinite(array).all():
        raise StorageFailure(f"{source}: a tensor is not finite")
    return array.copy()


#: One letter for every pickle instruction that `torch.save` uses for a dictionary of tensors.
_INSTRUCTIONS = {
    "MARK": "(",
    "EMPTY_TUPLE": ")",
    "EMPTY_DICT": "d",
    "TUPLE": "t",
    "TUPLE1": "1",
    "TUPLE2": "2",
    "TUPLE3": "3",
    "BINUNICODE": "s",
    "BININT": "i",
    "BININT1": "i",
    "BININT2": "i",
    "LONG1": "i",
    "NEWTRUE": "b",
    "NEWFALSE": "b",
    "BINPERSID": "P",
    "REDUCE": "R",
    "SETITEM": "+",
    "SETITEMS": "*",
    "BUILD": "B",
    "STOP": ".",
}
#: One letter for every global that such a pickle names.
_GLOBALS = {
    "collections OrderedDict": "O",
    "torch._utils _rebuild_tensor_v2": "T",
    "torch FloatStorage": "S",
    "torch DoubleStorage": "S",
    "torch LongStorage": "S",
}
_ITEM_SIZES = {"torch FloatStorage": 4, "torch DoubleStorage": 8, "torch LongStorage": 8}
#: Instructions whose results may be used again. Reusing containers could build a tree of any
#: size from a short pickle.
_REUSABLE = "sOTS"


def _items(entry: str) -> str:
    """Return the pattern of filling a dictionary with such entries."""
    return rf"(?:\((?:{entry})+\*|{entry}\+)*"


_STORAGE = r"\(sSssitP"  # ("storage", type, key, device, elements)
_SIZES = r"(?:\)|i1|ii2|iii3|\(i{4,8}t)"
_TENSOR = rf"T\({_STORAGE}i{_SIZES}{_SIZES}bO\)RtR"  # storage, offset, shape, strides, flags
_VERSION = r"sd(?:si\+)?"  # module: {"version": 1}
_METADATA = rf"dsO\)R{_items(_VERSION)}\+B"
_STATE_DICT = re.compile(rf"(?:O\)R|d){_items('s' + _TENSOR)}(?:{_METADATA})?\.")


def _storage_sizes(pickle: bytes, source: str) -> dict[str, int]:
    """Return key → bytes of the storages that a pickle refers to, without unpickling it."""
    try:
        form, arguments = _instructions(pickle)
    except (ValueError, LookupError, OverflowError) as error:
        reason = str(error) if isinstance(error, _Refused) else "its pickle is damaged"
        raise StorageFailure(f"{source}: {reason}; nothing in it was executed") from None
    found = list(re.finditer(_STORAGE, form))
    if not _STATE_DICT.fullmatch(form) or not 0 < len(found) <= MAX_TENSORS:
        raise StorageFailure(
            f"{source}: does not hold a dictionary of tensors; nothing in it was executed"
        )
    sizes: dict[str, int] = {}
    total = 0
    for match in found:
        key = arguments[match.start() + 3]
        size = arguments[match.start() + 5] * _ITEM_SIZES[arguments[match.start() + 2]]
        if not key.isascii() or not key.isalnum():
            raise StorageFailure(f"{source}: a storage has the name {key[:60]!r}")
        if size < 0 or sizes.setdefault(key, size) != size:
            raise StorageFailure(f"{source}: the storage {key} has an impossible size")
        total += size  # each tensor is copied, also where several share a storage
    if total > MAX_WEIGHT_BYTES:
        raise StorageFailure(
            f"{source}: its tensors are larger than {MAX_WEIGHT_BYTES:,} bytes"
        )
    return sizes


class _Refused(ValueError):
    """A pickle with instructions or names that no dictionary of tensors needs."""


def _instructions(pickle: bytes) -> tuple[str, list[Any]]:
    """Return a pickle as one letter per instruction, and the arguments of each."""
    letters: list[str] = []
    arguments: list[Any] = []
    memo: dict[int, tuple[str, Any]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pickletools warns about odd escapes in damaged text
        for code, given, _ in pickletools.genops(pickle):
            name = code.name
            argument: Any = given
            if name in ("BINPUT", "LONG_BINPUT"):
                memo[argument] = letters[-1], arguments[-1]
                continue
            if name == "PROTO":
                if argument != 2:
                    raise _Refused(f"its pickle has protocol {argument}, not torch.save's 2")
                continue
            if name in ("BINGET", "LONG_BINGET"):
                letter, argument = memo[argument]
                if letter not in _REUSABLE:
                    raise _Refused("its pickle uses a container twice")
            elif name == "GLOBAL":
                if argument not in _GLOBALS:
                    raise _Refused(f"its pickle names {argument[:60]!r}")
                letter = _GLOBALS[argument]
            elif name in _INSTRUCTIONS:
                letter = _INSTRUCTIONS[name]
            else:
                raise _Refused(f"its pickle has the instruction {name}")
            letters.append(letter)
            arguments.append(argument)
    return "".join(letters), arguments


# ── SB3's layers ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Heads:
    """The layers of an SB3 policy, sorted: encoders of π and V, and the heads on top."""

    kind: Literal["mlp", "nature"]
    policy: Layers
    value: Layers
    shared: bool  # V reads the same features as π
    action: tuple[Array, Array]
    critic: tuple[Array, Array]
    log_std: Array | None


_LAYER = re.compile(r"(.+)\.(\d{1,4})\.(weight|bias)")


def heads_of(tensors: dict[str, Array], source: str) -> Heads:
    """Sort tensors by SB3's names; an unknown name is an error."""
    rest = dict(tensors)
    groups: dict[str, dict[int, dict[str, Array]]] = {}
    for name, tensor in tensors.items():
        if not tensor.ndim:  # every weight and bias of a layer has at least one axis
            raise BadInput(f"{source}: {name[:60]!r} is a single number, not a layer's weights")
        if match := _LAYER.fullmatch(name):
            layer = groups.setdefault(match[1], {}).setdefault(int(match[2]), {})
            layer[match[3]] = rest.pop(name)
    try:
        heads = _take_heads(groups, rest)
    except KeyError as error:
        raise BadInput(
            f"{source}: not a PPO model of MlpPolicy or CnnPolicy (it has no {error})"
        ) from None
    unknown = [*rest, *groups]
    if unknown:
        raise BadInput(f"{source}: {unknown[0][:60]!r} is not part of MlpPolicy or CnnPolicy")
    return heads


def _take_heads(groups: dict[str, Any], rest: dict[str, Array]) -> Heads:
    """Build the heads, removing from both arguments what is used."""
    action = (rest.pop("action_net.weight"), rest.pop("action_net.bias"))
    critic = (rest.pop("value_net.weight"), rest.pop("value_net.bias"))
    log_std = rest.pop("log_std", None)
    common = _take_layers(groups, "mlp_extractor.shared_net")  # SB3 before 1.8
    policy = _take_layers(groups, "mlp_extractor.policy_net")
    value = _take_layers(groups, "mlp_extractor.value_net")
    extractors = _take_extractors(groups)
    if extractors is None:
        shared = not policy and not value
        return Heads("mlp", common + policy, common + value, shared, action, critic, log_std)
    if common or policy or value:
        raise BadInput("network: layers between NatureCNN and the heads are not supported")
    same = all(
        np.array_equal(a, b)
        for one, two in zip(*extractors, strict=True)
        for a, b in zip(one, two, strict=True)
    )
    return Heads("nature", *extractors, same, action, critic, log_std)


def _take_extractors(groups: dict[str, Any]) -> tuple[Layers, Layers] | None:
    """Return NatureCNN of π and of V; SB3 lists a shared one three times."""
    found = {}
    for prefix in ("", "pi_", "vf_"):
        convolutions = _take_layers(groups, f"{prefix}features_extractor.cnn")
        dense = _take_layers(groups, f"{prefix}features_extractor.linear")
        if convolutions or dense:
            found[prefix] = convolutions + dense
    if not found:
        return None
    policy = found.get("pi_", found.get("", []))
    value = found.get("vf_", found.get("", []))
    if len(policy) != 4 or len(value) != 4:
        raise KeyError("NatureCNN")
    return policy, value


def _take_layers(groups: dict[str, Any], name: str) -> Layers:
    group: dict[int, dict[str, Array]] = groups.pop(name, {})
    return [(group[i]["weight"], group[i]["bias"]) for i in sorted(group)]


def _check_fit(obs: ObservationSpec, action: ActionSpec, heads: Heads) -> None:
    """Refuse a model that would act differently here than in SB3."""
    image = heads.kind == "nature"
    if obs.kind != ("image" if image else "vector") or (obs.dtype == "uint8") != image:
        policy = "CnnPolicy" if image else "MlpPolicy"
        raise BadInput(
            f"{policy}: cannot read {obs.kind} observations of {obs.dtype}; is this the "
            "environment that the model was trained in?"
        )
    if action.kind == "hybrid":
        raise BadInput("SB3's PPO has no hybrid actions; is this the model's environment?")
    if (heads.log_std is None) != (action.kind == "categorical"):
        raise BadInput("the model's actions are of another kind than the environment's")
    widths = [len(bias) for _, bias in heads.policy]
    if heads.kind == "mlp" and len(set(widths)) != 1:
        raise BadInput(f"network: net_arch {widths} needs one width for all layers")


def fill(networks: Networks, heads: Heads, obs: ObservationSpec, action: ActionSpec) -> None:
    """Copy SB3's weights into the networks."""
    policy = _encoder_weights(heads.policy, heads.kind, obs)
    policy["policy_head.weight"] = _logits(heads.action[0], action)
    policy["policy_head.bias"] = _logits(heads.action[1], action)
    if heads.shared:
        policy["value_head.weight"], policy["value_head.bias"] = heads.critic
    else:
        width = policy["policy_head.weight"].shape[1]
        policy["value_head.weight"] = np.zeros((1, width), np.float32)
        policy["value_head.bias"] = np.zeros(1, np.float32)
    if heads.log_std is not None:
        policy["log_std"] = heads.log_std
    try:
        _load(networks.policy, policy)
        if networks.value is not None:
            value = _encoder_weights(heads.value, heads.kind, obs)
            value["value_head.weight"], value["value_head.bias"] = heads.critic
            _load(networks.value, value)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        if len(reason) > 120:
            reason = f"… {reason[-120:].partition(' ')[2]}"
        raise BadInput(f"the model does not fit the environment ({reason})") from None


def _encoder_weights(layers: Layers, kind: str, obs: ObservationSpec) -> dict[str, Array]:
    """Return the layers under the names that the encoders of this package have.

    The numbers in these names also count activations, and a Flatten, which comes first (mlp) or
    fourth (nature).
    """
    if kind == "mlp":
        pairs = {f"encoder.{1 + 2 * i}": pair for i, pair in enumerate(layers)}
    else:
        *convolutions, (weight, bias) = layers
        channels = len(convolutions[-1][1])
        height = obs.shape[0]
        width = obs.shape[1]
        for kernel, stride in ((8, 4), (4, 2), (3, 1)):
            height = (height - kernel) // stride + 1
            width = (width - kernel) // stride + 1
        if weight.shape[1] != channels * height * width:
            raise BadInput(f"the model does not fit images of {obs.shape}")
        # SB3 flattens [C, H, W], this package [H, W, C].
        columns = weight.reshape(len(weight), channels, height, width).transpose(0, 2, 3, 1)
        pairs = {f"encoder.{2 * i}": pair for i, pair in enumerate(convolutions)}
        pairs["encoder.7"] = (columns.reshape(len(weight), -1), bias)
    named: dict[str, Array] = {}
    for name, (weight, bias) in pairs.items():
        named[f"{name}.weight"] = weight
        named[f"{name}.bias"] = bias
    return named


def _logits(head: Array, action: ActionSpec) -> Array:
    """Return a head with one logit per choice: SB3 has one per bit; the logit of 0 is 0."""
    bits = set(action.choices) == {2} and len(head) == len(action.choices)
    if not bits:
        return head
    both = np.zeros((2 * len(head), *head.shape[1:]), head.dtype)
    both[1::2] = head
    return both


def _load(module: torch.nn.Module, weights: dict[str, Array]) -> None:
    tensors = {
        name: torch.from_numpy(np.ascontiguousarray(weight)).float()
        for name, weight in weights.items()
    }
    module.load_state_dict(tensors)
