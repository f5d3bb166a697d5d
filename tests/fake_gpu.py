"""A GPU without memory: torch's `FakeTensor` stands for what is on it, the host stays real.

A `FakeTensor` knows its shape, type and device, but holds no numbers. Under `fake_gpu` a tensor
of the host is an ordinary tensor, and one of the GPU is a fake one. Each operator runs on one
of the two. What a GPU would refuse, or would do slowly without saying so, is an error here: an
operator on tensors of both, and a number that is read back by code that is not expected to.
As in torch, a single number of the host may take part in an operator of the GPU. Numbers that
are read back are made up: see `FakeGpu.read`.
"""

import sys
import weakref
from collections import Counter
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: With an index: without one, torch asks CUDA for the current device.
GPU = torch.device("cuda", 0)
#: torch allocates memory of a GPU in multiples of so many bytes.
BLOCK = 512
aten = torch.ops.aten
DEVICE = torch.ops.prim.device.default
META = torch.device("meta")
COMPOSED = torch._C.DispatchKey.CompositeImplicitAutograd


class Mixed(AssertionError):
    """An operator was given tensors of the host and of the GPU."""


class UnexpectedRead(AssertionError):
    """Code that is not expected to wait for the GPU did so."""


@contextmanager
def fake_gpu(readers: set[str] | None = None):
    """Within this context there is a `GPU`.

    `readers` are the functions that may read from it, as `module.qualified.name` without
    `dna.`; None: all.
    """
    with _Fakes(allow_non_fake_inputs=True), FakeGpu(readers) as gpu:
        yield gpu


class _Fakes(FakeTensorMode):
    """torch's mode, in which C++ code takes the GPU for the device "meta".

    C++ code asks for a device by an operator, which `Tensor.device` in Python does not. For
    "cuda" autograd would look for streams, which a build of torch without CUDA does not have.
    The price: autocast casts nothing, and activations in bfloat16 are counted as float32.
    """

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is DEVICE:
            return META
        kwargs = kwargs or {}
        if kwargs.get("device") == META:
            kwargs = {**kwargs, "device": GPU}
        return super().__torch_dispatch__(func, types, args, kwargs)


class FakeGpu(TorchDispatchMode):
    """Decides for each operator where it runs, and counts what passes between the two."""

    def __init__(self, readers: set[str] | None) -> None:
        super().__init__()
        self.readers = readers
        self.reads: Counter[str] = Counter()  # by the function of the package that reads
        self.uploads: Counter[str] = Counter()  # from pinned memory, by function
        self.pageable: Counter[str] = Counter()  # uploads that make the host wait
        self.pinned: set[int] = set()  # addresses of storages
        self.allocations: dict[int, int] = {}  # storage → bytes
        self.live = 0
        self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is DEVICE:
            return META
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        fakes = [x for x in tensors if isinstance(x, FakeTensor)]
        device = kwargs.get("device")
        if device == META:  # C++ makes one like another one on the GPU
            device = GPU
            kwargs = {**kwargs, "device": GPU}
        if not fakes and (device is None or device.type == "cpu"):
            return self._on_host(func, args, kwargs)
        if func.has_kernel_for_dispatch_key(COMPOSED):
            # Autograd takes these operators apart, inference mode does not.
            with self:
                return func.decompose(*args, **kwargs)
        if func is aten._local_scalar_dense.default:
            with unset_fake_temporarily():
                return self.read(args[0]).item()
        if func is aten._to_copy.default:
            return self._moved(func, args, kwargs)
        if func is aten.copy_.default and len(fakes) == 1 and len(tensors) == 2:
            return self._copied(func, *args)
        hosts = [x for x in tensors if not isinstance(x, FakeTensor) and x.dim()]
        if hosts:
            shapes = [tuple(x.shape) for x in hosts]
            raise Mixed(f"{func} in {site()}: tensors {shapes} are not on the GPU")
        return self._allocated(func(*args, **kwargs))

    def read(self, x: Tensor) -> Tensor:
        """Copy to the host: ones for a single number (true, finite), else zeros."""
        where = site()
        if self.readers is not None and where not in self.readers:
            raise UnexpectedRead(f"{where} reads {tuple(x.shape)} from the GPU")
        self.reads[where] += 1
        with unset_fake_temporarily():
            out = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype)
            return out.fill_(0 if x.dim() else 1)

    def _on_host(self, func, args, kwargs):
        with unset_fake_temporarily():
            if func is aten.is_pinned.default:
                return args[0].untyped_storage()._cdata in self.pinned
            if func in (aten.pin_memory.default, aten._pin_memory.default):
                copy = args[0].clone()
                storage = copy.untyped_storage()
                self.pinned.add(storage._cdata)
                weakref.finalize(storage, self.pinned.discard, storage._cdata)
                return copy
            return func(*args, **kwargs)

    def _moved(self, func, args, kwargs):
        """`Tensor.to`."""
        (x,) = args
        device = kwargs.get("device") or x.device
        if not isinstance(x, FakeTensor):
            self._upload(x)
        elif device.type == "cpu":
            with unset_fake_temporarily():
                return self.read(x).to(kwargs.get("dtype") or x.dtype)
        elif not x.requires_grad and kwargs.get("dtype") in (None, x.dtype):
            return x  # C++ asked for the device, which is not "meta", and so copies
        return self._allocated(func(*args, **kwargs))

    def _copied(self, func, out, x, non_blocking=False):
        if isinstance(x, FakeTensor):
            with unset_fake_temporarily():
                return out.copy_(self.read(x))
        self._upload(x)
        return func(out, torch.empty_like(x, device=GPU))

    def _upload(self, x: Tensor) -> None:
        pinned = x.untyped_storage()._cdata in self.pinned
        counter = self.uploads if pinned else self.pageable
        counter[site()] += 1

    def _allocated(self, result):
        """Count the memory of new tensors until their storage is freed."""
        for x in tree_leaves(result):
            if isinstance(x, FakeTensor):
                if x.device != GPU:
                    raise Mixed(f"{site()} makes a tensor on {x.device}")
                storage = x.untyped_storage()
                key = storage._cdata
                if key not in self.allocations:
                    size = -(-storage.nbytes() // BLOCK) * BLOCK
                    self.allocations[key] = size
                    self.live += size
                    self.peak = max(self.peak, self.live)
                    weakref.finalize(storage, self._freed, key)
        return result

    def _freed(self, key: int) -> None:
        self.live -= self.allocations.pop(key)


def site() -> str:
    """The innermost function of the package that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        name = frame.f_code.co_qualname
        if module.startswith("dna.") and not name.endswith(">"):  # a comprehension, a lambda
            return f"{module.removeprefix('dna.')}.{name}"
        frame = frame.f_back
    return "no function of dna"
