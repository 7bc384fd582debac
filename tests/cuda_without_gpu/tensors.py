"""Tensors that claim to be on CUDA, and compute on the CPU: with real numbers, and a ledger of what a GPU would do.

    op on such tensors -> autograd, autocast (CUDA's) -> `Gpu`: checked and counted -> the same op on the CPU's tensors

`Gpu` is the dispatch mode that must be active. It raises where a GPU's tensors meet a CPU's, as torch does. In its
ledger it counts launches of kernels, and notes each call of attention and each wait of the host for the device.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from tests.cuda_without_gpu import kernels
from tests.cuda_without_gpu.kernels import Attention

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("common", "cli", "shards", "train", "eval", "adapt", "pipelines", "retrieval", "serve", "plugins")
CUDA = torch.device("cuda", 0)
aten = torch.ops.aten
WAITS = {
    aten._local_scalar_dense.default: "reads a number",
    aten.nonzero.default: "nonzero",
    aten.masked_select.default: "masked_select",
    aten._unique2.default: "unique",
    aten.unique_consecutive.default: "unique",
    aten.unique_dim.default: "unique",
    aten.equal.default: "equal",
    aten.bincount.default: "bincount",
}
"""Operators whose result the host needs, or whose output has a size that only the device knows."""
FREE = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh", "_unsafe_view", "set_",
    "record_stream", "detach", "_local_scalar_dense", "is_same_size", "_fused_sdp_choice",
}  # fmt: skip
"""Operators without a kernel, besides views. Reading a number is counted as a wait."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}


@dataclass(frozen=True)
class Wait:
    """One wait of the host for the device: why, and the function of this repository in which it happens."""

    why: str
    file: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.why} in {self.file} {self.function}"


@dataclass
class Ledger:
    """Record of what a GPU would have done.

    Attributes:
        launches: the number of kernels, with one kernel an operator; a GPU may need several for some operators.
        waits: the waits of the host for the device, except by events.
        events: the number of waits for an event, which only wait for what came before the event.
        attention: the calls of attention in forward passes.
        copies: the number of asynchronous copies between pinned memory and the device.
        casts: the identity of a parameter for each time that autocast cast it to half precision.
    """

    launches: int = 0
    waits: list[Wait] = field(default_factory=list)
    events: int = 0
    attention: list[Attention] = field(default_factory=list)
    copies: int = 0
    casts: list[int] = field(default_factory=list)

    def wait(self, why: str) -> None:
        self.waits.append(Wait(why, *_place()))


class _Current:
    ledger = Ledger()


@contextlib.contextmanager
def recording() -> Iterator[Ledger]:
    """Return a context that yields the ledger of what happens within it."""
    before, _Current.ledger = _Current.ledger, Ledger()
    try:
        yield _Current.ledger
    finally:
        _Current.ledger = before


def ledger() -> Ledger:
    return _Current.ledger


class Random:
    """The device's random state, which is not the host's: what seeds or restores one does not touch the other.

    The numbers are drawn by the CPU's generator, which has this state meanwhile.
    """

    def __init__(self) -> None:
        self.state = torch.Generator().get_state()

    def seed(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def set(self, state: Tensor) -> None:
        self.state = state.clone()

    @contextlib.contextmanager
    def drawing(self) -> Iterator[None]:
        host = torch.get_rng_state()
        torch.set_rng_state(self.state)
        try:
            yield
        finally:
            self.state = torch.get_rng_state()
            torch.set_rng_state(host)


RANDOM = Random()


class OnGpu(Tensor):
    """A tensor on the device `cuda:0`, whose numbers are those of `inner`, a tensor of the CPU.

    Args:
        inner: the tensor of the CPU.
    """

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, requires_grad: bool = False) -> "OnGpu":
        with torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext():
            made = Tensor._make_wrapper_subclass(  # no inference tensor: it could not be detached
                cls,
                inner.size(),
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                layout=inner.layout,
                device=CUDA,
                requires_grad=requires_grad,
            )
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(func, args, kwargs or {})

    @property
    def data(self) -> Tensor:
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, value: "OnGpu") -> None:
        Tensor.data.__set__(self, value)
        self.inner = value.inner

    def tolist(self) -> Any:
        ledger().wait("reads a tensor")
        return self.inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def record_stream(self, stream: Any) -> None:
        """Do nothing: no memory is reused early."""

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: None, size: Any, stride: Any) -> "OnGpu":
        return OnGpu(inner["inner"])

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = OnGpu(self.inner.clone())
        if self.requires_grad:
            copy.requires_grad_()
        made = torch.nn.Parameter(copy, self.requires_grad) if getattr(self, "_is_param", False) else copy
        memo[id(self)] = made
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnGpu({self.inner!r})"


class Gpu(TorchDispatchMode):
    """The device, as a dispatch mode: operators that make tensors on CUDA, or read them, go by it."""

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True: torch.compile works within it."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatched(func, args, kwargs or {})


_pinned: dict[int, Tensor] = {}
"""Address of a storage in pinned memory -> a tensor that keeps it."""


def pin(tensor: Tensor) -> Tensor:
    """Return a copy in "pinned" memory."""
    copy = tensor.clone()
    _pinned[copy.untyped_storage().data_ptr()] = copy
    return copy


def is_pinned(tensor: Tensor) -> bool:
    return not isinstance(tensor, OnGpu) and tensor.untyped_storage().data_ptr() in _pinned


def dispatched(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator: on the CPU's tensors as ever, on those of the device counted and checked."""
    leaves, spec = tree_flatten((args, kwargs))
    has_gpu = any(isinstance(leaf, OnGpu) for leaf in leaves)
    if has_gpu and any(isinstance(leaf, FakeTensor) and leaf.is_cuda for leaf in leaves):  # torch.compile made them
        leaves = [_of_compiler(leaf) if isinstance(leaf, FakeTensor) and leaf.is_cuda else leaf for leaf in leaves]
        args, kwargs = tree_unflatten(leaves, spec)
    device = kwargs.get("device")
    to_gpu = device is not None and torch.device(device).type == "cuda"
    if not has_gpu and not to_gpu:
        return _on_host(func, args, kwargs)
    if _is_composite(func) and func._schema.name not in kernels.OF:  # inference mode does not take it apart
        with Gpu():
            return func.decompose(*args, **kwargs)
    name = func._schema.name.partition("::")[2]
    if func in (aten._to_copy.default, aten.copy_.default):
        return _copied(func, args, kwargs)
    if name == "record_stream":
        return None
    if name == "is_pinned":
        return False
    _check_devices(name, leaves)
    book = ledger()
    if (attend := kernels.OF.get(func._schema.name)) is not None:
        book.launches += 1
        with RANDOM.drawing():
            return _wrapped(attend(book.attention, *_inner(args), **_inner(kwargs)))
    if func in WAITS:
        book.wait(WAITS[func])
    elif name in INDEXING:
        _check_index(name, args)
    elif name == "repeat_interleave" and kwargs.get("output_size") is None and func is aten.repeat_interleave.Tensor:
        book.wait("repeat_interleave without output_size")
    if name not in FREE and not _is_view(func):
        book.launches += 1
    inner_args, inner_kwargs = tree_unflatten([x.inner if isinstance(x, OnGpu) else x for x in leaves], spec)
    if device is not None:
        inner_kwargs["device"] = torch.device("cpu")
    inner_kwargs.pop("pin_memory", None)
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    with RANDOM.drawing() if is_random else contextlib.nullcontext():
        result = func(*inner_args, **inner_kwargs)
    if device is not None and not to_gpu:
        return result
    return _same(func, args, kwargs, _wrapped(result))


def _of_compiler(tensor: FakeTensor) -> OnGpu:
    """Return a tensor of torch.compile's, which has a shape alone, as one on the device."""
    with tensor.fake_mode:
        return OnGpu(torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu"))


def _on_host(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on the CPU; "pinned" memory is noted."""
    if func in (aten._pin_memory.default, aten.pin_memory.default):
        return pin(args[0])
    if func is aten.is_pinned.default:
        return is_pinned(args[0])
    if kwargs.get("pin_memory"):
        return pin(func(*args, **{**kwargs, "pin_memory": False}))
    return func(*args, **kwargs)


def _copied(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Copy within the device, or between it and the host, and note whether the host waits."""
    to_copy = func is aten._to_copy.default
    source = args[0] if to_copy else args[1]
    if to_copy:
        device = kwargs.get("device")
        gpu = isinstance(source, OnGpu) if device is None else torch.device(device).type == "cuda"
        non_blocking = kwargs.get("non_blocking", False)
    else:
        gpu = isinstance(args[0], OnGpu)
        non_blocking = kwargs.get("non_blocking", args[2] if len(args) > 2 else False)
    book, from_gpu = ledger(), isinstance(source, OnGpu)
    host = source if gpu else (None if to_copy else args[0])
    if gpu and from_gpu:
        book.launches += 1
        if getattr(source, "_is_param", False) and kwargs.get("dtype") in (torch.bfloat16, torch.float16):
            book.casts.append(id(source))
    elif not to_copy and gpu and source.dim() == 0 and source.numel() == 1 and not non_blocking:
        book.launches += 1
        book.wait("copies a number to the device")
    elif not non_blocking:
        book.wait("copies to the device, blocking" if gpu else "copies to the host, blocking")
    elif host is not None and not is_pinned(host):
        book.wait("copies unpinned memory to the device" if gpu else "copies to unpinned memory")
    else:
        book.copies += 1
    if not to_copy:
        target = args[0].inner if gpu else args[0]
        target.copy_(source.inner if from_gpu else source)
        return args[0]
    options = {key: value for key, value in kwargs.items() if key in ("dtype", "layout", "memory_format")}
    made = func(source.inner if from_gpu else source, **options)
    return OnGpu(made) if gpu else pin(made) if non_blocking else made


def _check_devices(name: str, leaves: list[Any]) -> None:
    """Raise RuntimeError if tensors of the device and of the host meet, except for scalars of the host."""
    host = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, OnGpu) and leaf.dim() > 0]
    if host and any(isinstance(leaf, OnGpu) for leaf in leaves):
        if name in INDEXING:
            ledger().wait("copies an index to the device, blocking")
            return
        raise RuntimeError(f"Expected all tensors to be on the same device, but {name} got cuda:0 and cpu")


def _check_index(name: str, args: Any) -> None:
    """Note that the device must say how many elements a mask of an index takes."""
    masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
    fills = name != "index" and len(args) > 2 and args[2].numel() == 1 and len(masks) == 1
    if masks and not fills:
        ledger().wait("index by a mask")


def _inner(tree: Any) -> Any:
    return tree_map(lambda leaf: leaf.inner if isinstance(leaf, OnGpu) else leaf, tree)


def _wrapped(tree: Any) -> Any:
    return tree_map(lambda leaf: OnGpu(leaf) if isinstance(leaf, Tensor) else leaf, tree)


@functools.cache
def _is_composite(func: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")


@functools.cache
def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _same(func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
    """Return the arguments that an operator changed in place of its results."""
    returns = func._schema.returns
    if not any(one.alias_info is not None and one.alias_info.is_write for one in returns):
        return result
    written: dict[frozenset[str], Any] = {}
    for at, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[at] if at < len(args) else kwargs.get(argument.name)
            written[frozenset(argument.alias_info.before_set)] = value
    results = result if isinstance(result, (tuple, list)) else (result,)
    same = [
        written.get(frozenset(one.alias_info.before_set), made) if one.alias_info is not None else made
        for one, made in zip(returns, results, strict=True)
    ]
    return tuple(same) if isinstance(result, (tuple, list)) else same[0]


def _place() -> tuple[str, str, int]:
    """Return (file, function, line) of the innermost frame in this repository's packages, else of any library."""
    if threading.current_thread() is not threading.main_thread():
        known: tuple[str, str, int] = ("backward", "", 0)
    else:
        known = ("elsewhere", "", 0)
    frame = sys._getframe(2)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT):
            relative = path.relative_to(ROOT)
            parts = relative.parts[1:] if relative.parts[0] == "clearspan" else relative.parts
            if parts[0] in FOLDERS and not frame.f_code.co_name.startswith("<"):  # comprehensions
                return "/".join(parts), frame.f_code.co_name, frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return known
