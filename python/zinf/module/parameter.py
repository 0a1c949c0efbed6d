# SPDX-License-Identifier: Apache-2.0
"""Guarded tensors: parameters in zinf's memory that cannot crash the interpreter.

The memory of a parameter is read-only, and is away while its unit is not unsharded. A plain tensor
there ends the process (SIGSEGV) when code writes to it, or reads it while it is away. So a
parameter keeps its object, and its class becomes a subclass with __torch_function__. Each operation
on it comes here first:

- Questions about shape, dtype and the like, and views, need no memory. A view is guarded as well.
- A write raises ReadOnlyParameter, except inside Engine.writable().
- Any other operation holds the unit while it runs. Where autograd records it, a hook on its result
  brings the unit back before backward needs the values again.

torch reads or shares memory without this detour in few functions. install() guards tensor(),
new_tensor(), new(), set_(), torch.Tensor(p), jit.script() and jit.trace(). torch.FloatTensor(p),
extensions in C and the private Tensor._make_subclass() share memory unguarded: memory.py closes it
while the parameter is away. A write through such a tensor while the values are present ends the
process. install() also guards autograd.backward(), for its inputs.

A placeholder in `.data` would be cheaper for each operation, but a read of it would return wrong
values without an error.
"""

from __future__ import annotations

import collections
import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable

import torch

from ..errors import ReadOnlyParameter, ZinfError
from . import direct, hooks

if TYPE_CHECKING:
    from .units import Slot, Unit

__all__ = ["Guarded", "GuardedParameter", "GuardedTensor", "guard", "install", "plain"]

Handler = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]

# Ends the interception of functions inside its block: 2.x has the first name, 1.13 the second.
_guards: Any = torch._C
NoDispatch: Any = getattr(_guards, "DisableTorchFunctionSubclass", None)
if NoDispatch is None:
    NoDispatch = _guards.DisableTorchFunction


class Guarded:
    """What guarded parameters and guarded views have in common."""

    __slots__ = ()
    _zinf: Slot

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one operation of torch on guarded tensors."""
        handler = _handlers.get(func)
        if handler is None:
            handler = _handlers[func] = _classify(func)
        return handler(func, args, kwargs or {})

    def as_subclass(self, cls: Any) -> Any:
        """Return a copy of another class: torch does not guard this function itself."""
        copied: Any = plain(self)
        with NoDispatch():
            return copied.as_subclass(cls)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a plain tensor with memory of its own."""
        if id(self) in memo:
            return memo[id(self)]
        with NoDispatch():
            if not self.is_leaf:  # type: ignore[attr-defined]
                raise RuntimeError(
                    "a view of a parameter that is part of a graph has no deepcopy: detach() it"
                )
        memo[id(self)] = copied = plain(self)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle a plain tensor of the CPU with the values of now."""
        copied = plain(self, is_on_host=True)
        if not isinstance(copied, torch.nn.Parameter):
            return copied.__reduce_ex__(protocol)
        hooks: Any = collections.OrderedDict()
        return torch._utils._rebuild_parameter, (copied.data, copied.requires_grad, hooks)

    def __repr__(self, *, tensor_contents: Any = None) -> Any:
        unit = self._zinf.unit
        unit.hold()
        try:
            text = repr(_unguarded(self))
        finally:
            unit.release()
        is_parameter = isinstance(self, torch.nn.Parameter)
        return f"Parameter containing:\n{text}" if is_parameter else text


class GuardedParameter(Guarded, torch.nn.Parameter):  # type: ignore[misc]
    """A parameter whose values lie in zinf's memory."""


class GuardedTensor(Guarded, torch.Tensor):  # type: ignore[misc]
    """A view of a parameter in zinf's memory."""


_classes: dict[type, type] = {
    torch.nn.Parameter: GuardedParameter,
    torch.Tensor: GuardedTensor,
}


def guard(tensor: Any, slot: Slot) -> None:
    """Make a parameter or a view guarded. Its object stays; its class becomes a subclass."""
    kind = type(tensor)
    guarded = _classes.get(kind)
    if guarded is None:
        guarded = _classes[kind] = type(kind.__name__, (Guarded, kind), {})
    tensor.__class__ = guarded
    tensor._zinf = slot


def _unguarded(tensor: Any) -> Any:
    """Return a plain view of a guarded tensor, for the time that its unit is held."""
    with NoDispatch(), torch.no_grad():
        return torch.Tensor.as_subclass(tensor.detach(), torch.Tensor)


def plain(tensor: Any, *, is_on_host: bool = False) -> Any:
    """Return a copy of a guarded tensor in memory of its own; of a parameter, a Parameter.

    is_on_host: the copy is on the CPU; else on the tensor's device.
    """
    unit = tensor._zinf.unit
    unit.hold()
    try:
        with NoDispatch(), torch.no_grad():
            needs_grad = tensor.requires_grad
            source = _unguarded(tensor)
            if is_on_host and unit.engine.device.is_gpu:
                copied = source.to("cpu", copy=True)
            else:
                copied = source.clone(memory_format=torch.preserve_format)
    finally:
        unit.release()
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(copied, needs_grad)
    return copied.requires_grad_(needs_grad)


class StorageView:
    """What code may know of a guarded tensor's storage: identity and length, but no elements."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self.device = slot.unit.engine.device.place

    def data_ptr(self) -> int:
        """Return the address, which two tensors that share memory have in common."""
        return self._slot.address

    def nbytes(self) -> int:
        """Return the length in bytes."""
        return self._slot.byte_count

    def __len__(self) -> int:
        return self._slot.byte_count

    def __getitem__(self, index: Any) -> Any:
        return self.__getattr__("elements")

    def __reduce__(self) -> Any:
        return self.__getattr__("pickle")

    def __getattr__(self, name: str) -> Any:
        if name == "_fix_weakref":  # torch.compile() and torch.export ask for it
            raise ReadOnlyParameter(
                "torch.compile() and torch.export of a model in zinf: compiled code would use "
                f"memory that zinf takes away (parameter '{self._slot.name}'). Train without "
                "torch.compile(); for inference compile copy.deepcopy(model)"
            )
        raise ReadOnlyParameter(
            f"parameter '{self._slot.name}' lies in zinf's memory: its storage has no '{name}'. "
            "Use the parameter, or a clone() of it"
        )


# ---- operations ----


def _meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answer a question that needs no memory."""
    with NoDispatch():
        return func(*args, **kwargs)


def _view(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a view: no memory is needed, and it is guarded as well."""
    with NoDispatch():
        result = func(*args, **kwargs)
    source = args[0] if args else next(iter(kwargs.values()), None)
    if isinstance(source, Guarded):
        _mark(result, _slots(args, kwargs), source._zinf)
    return result


def _address(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the address of the first element, which torch does not give while it is away.

    On a GPU nothing closes the memory: a kernel of backward would read another unit there.
    """
    unit = args[0]._zinf.unit
    if unit.engine.is_gpu and not unit.is_resident and hooks.is_inside_backward():
        raise ZinfError(
            f"data_ptr() of parameter '{args[0]._zinf.name}' in backward, while unit "
            f"'{unit.name}' is away: a kernel would read other values. Use the parameter inside "
            "the forward of a module of its unit, whose result takes part in the graph"
        )
    with NoDispatch():
        tensor: Any = args[0]
        return int(tensor._zinf.address + tensor.storage_offset() * tensor.element_size())


def _no(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return False


def _compute(
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    needs_values: bool = True,
    is_direct: bool = False,
) -> Any:
    """Run an operation that reads: the unit stays meanwhile.

    needs_values: whether the backward of the operation reads the parameters. is_direct: whether
    their gradient does not go through autograd.
    """
    slots = _slots(args, kwargs)
    out = kwargs.get("out")
    if out is not None:
        _refuse_targets(func, out)
    held = []
    if slots and slots[0].unit.engine.is_gpu:
        slots[0].unit.engine.order()
    try:
        for slot in slots:
            if not slot.unit.is_resident or slot.unit.is_part:
                slot.unit.hold()
                held.append(slot.unit)
        with NoDispatch():
            result = func(*args, **kwargs)
        _mark(result, slots, needs_values=needs_values)
        if not is_direct and torch.is_grad_enabled():
            for slot in slots:
                slot.is_dense = True
    finally:
        for unit in held:
            unit.release()
    return result


def _slots(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Slot]:
    slots = []
    for value in args:
        if isinstance(value, Guarded):
            slots.append(value._zinf)
        elif isinstance(value, (list, tuple)):
            slots += [item._zinf for item in value if isinstance(item, Guarded)]
    for value in kwargs.values():
        if isinstance(value, Guarded):
            slots.append(value._zinf)
        elif isinstance(value, (list, tuple)):
            slots += [item._zinf for item in value if isinstance(item, Guarded)]
    return slots


def _mark(
    result: Any, slots: list[Slot], owner: Slot | None = None, *, needs_values: bool = True
) -> None:
    """Guard what lies in zinf's memory, and let backward bring units back before it uses them.

    slots: what the operation took. owner: the slot of which the result is a view; None: as the
    addresses tell, of units that are present. needs_values: of _compute().
    """
    if isinstance(result, torch.Tensor):
        if isinstance(result, Guarded):  # an operation that returned its argument
            return
        if result.requires_grad and result.grad_fn is not None:
            last = None
            for slot in slots:
                if slot.unit is not last:
                    last = slot.unit
                    hook: Any = result.register_hook
                    hook(last.before_backward if needs_values else last.before_valueless)
        if owner is None:
            owner = _owner(result, slots)
        if owner is not None and type(result) is torch.Tensor:
            result.__class__ = GuardedTensor
            result._zinf = owner  # type: ignore[attr-defined]
    elif isinstance(result, (tuple, list)):
        for item in result:
            _mark(item, slots, owner, needs_values=needs_values)
    elif isinstance(result, dict):
        for item in result.values():
            _mark(item, slots, owner, needs_values=needs_values)


def _owner(result: Any, slots: list[Slot]) -> Slot | None:
    try:
        address = result.data_ptr()
    except RuntimeError:  # sparse, or without memory
        return None
    for slot in slots:
        if slot.address <= address < slot.end:
            return slot
    return None


# ---- writes ----


def _name_of(func: Any) -> str:
    name = str(getattr(func, "__name__", func))
    if name in ("__get__", "__set__", "__delete__"):
        owner = getattr(func, "__self__", None)
        owner = getattr(owner, "fget", None) or owner
        return str(getattr(owner, "__name__", name))
    return name.partition(".")[0]  # an operator of torch.ops has its overload behind a dot


def _refuse(slot: Slot, what: str) -> None:
    raise ReadOnlyParameter(
        f"parameter '{slot.name}' lies in zinf's memory, which is read-only: {what} would write to "
        "it. Write inside `with zinf.engine_of(model).writable():`, on every rank"
    )


def _refuse_targets(func: Any, target: Any) -> None:
    for item in target if isinstance(target, (list, tuple)) else (target,):
        if isinstance(item, Guarded):
            unit = item._zinf.unit
            if not (unit.is_writable or unit.engine.open_for_write(unit)):
                _refuse(item._zinf, f"{_name_of(func)}()")


def _write(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation that writes to its first argument, or refuse it."""
    target = args[0] if args else next(iter(kwargs.values()), None)
    if isinstance(target, torch.nn.Parameter) and isinstance(target, Guarded):
        record = target._zinf.unit.engine.recorder
        if record is not None and _name_of(func) == "copy_":
            record(target._zinf, args[1] if len(args) > 1 else kwargs["src"])
            return target
    _refuse_targets(func, target)
    return _compute(func, args, kwargs)


def _write_if(position: int, name: str) -> Handler:
    """Return a handler of functions that write to their first argument if an option says so."""

    def handler(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        option = args[position] if len(args) > position else kwargs.get(name)
        if option and (args or kwargs):
            _refuse_targets(func, args[0] if args else next(iter(kwargs.values())))
        return _compute(func, args, kwargs)

    return handler


def _embed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    weight: Any = args[1] if len(args) > 1 else kwargs.get("weight")
    max_norm = args[3] if len(args) > 3 else kwargs.get("max_norm")
    if max_norm is not None and isinstance(weight, Guarded):
        _refuse(weight._zinf, "max_norm of an embedding")
    if _name_of(func) != "embedding":
        # embedding_bag() with weights of samples has a backward that reads the parameter.
        return _compute(func, args, kwargs)
    rows: Any = args[0] if args else kwargs.get("input")
    held = _hold_rows(weight, rows)
    try:
        options = dict(zip(_EMBEDDING_OPTIONS, args[2:]), **kwargs)
        if not _is_whole(weight) or not direct.takes_embedding(weight._zinf, rows, options):
            return _compute(func, args, kwargs, needs_values=False)
        padding = options.get("padding_idx")

        def call(*_: Any, **__: Any) -> Any:
            return direct.embedding(weight._zinf, lambda: _unguarded(weight), rows, padding)

        return _compute(call, args, kwargs, needs_values=False, is_direct=True)
    finally:
        if held is not None:
            held.release()


# Those behind `input` and `weight`.
_EMBEDDING_OPTIONS = ("padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor is a parameter, and not a view of one."""
    return isinstance(tensor, Guarded) and isinstance(tensor, torch.nn.Parameter)


def _linear(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    names = ("input", "weight", "bias")
    values: list[Any] = [
        args[place] if len(args) > place else kwargs.get(name) for place, name in enumerate(names)
    ]
    x, weight, bias = values
    if not _is_whole(weight) or not direct.takes_linear(weight._zinf, x, bias):
        return _compute(func, args, kwargs)

    def call(*_: Any, **__: Any) -> Any:
        return direct.linear(weight._zinf, lambda: _unguarded(weight), x)

    return _compute(call, args, kwargs, is_direct=True)


def _differentiate(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuse torch.autograd.grad() of a parameter whose gradient is not autograd's alone."""
    if not kwargs.get("create_graph"):  # It is refused for that.
        inputs = args[1] if len(args) > 1 else kwargs.get("inputs")
        _refuse_inputs("torch.autograd.grad()", inputs)
    return _compute(func, args, kwargs)


def _refuse_inputs(what: str, inputs: Any) -> None:
    """Refuse parameters as inputs whose gradient is not autograd's alone."""
    if isinstance(inputs, dict):
        inputs = inputs.values()
    elif isinstance(inputs, torch.Tensor) or not hasattr(inputs, "__len__"):
        inputs = (inputs,)
    for item in inputs:
        if isinstance(item, Guarded) and item._zinf.has_parts:
            raise ZinfError(
                f"{what} of parameter '{item._zinf.name}': an embedding or a head puts its "
                "gradient into zinf's memory. Use backward() without inputs, or compute it on "
                "copy.deepcopy(model)"
            )


def _hold_rows(weight: Any, rows: Any) -> Unit | None:
    """Hold the rows of a parameter that an embedding reads. None: it needs the whole unit."""
    if not _is_whole(weight) or direct.is_transformed():
        return None
    if type(rows) is not torch.Tensor or rows.dtype not in (torch.int64, torch.int32):
        return None
    slot = weight._zinf
    is_held = rows.numel() > 0 and rows.device.type == "cpu" and slot.unit.hold_rows(slot, rows)
    return slot.unit if is_held else None


def _normalize(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a normalization: it writes running means and variances, which are no parameters."""
    first = 1 if _is_python(func) else 3
    named = [value for name, value in kwargs.items() if name.startswith("running_")]
    _refuse_targets(func, [*args[first : first + 2], *named])
    return _compute(func, args, kwargs)


def _set_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    tensor, value = args[0], args[1]
    with NoDispatch():
        is_same = (
            isinstance(value, Guarded)
            and value.dtype == tensor.dtype  # type: ignore[attr-defined]
            and value.shape == tensor.shape  # type: ignore[attr-defined]
            and value._zinf is tensor._zinf
            and value.storage_offset() == tensor.storage_offset()  # type: ignore[attr-defined]
        )
        if is_same:
            return
        conversion = ""
        if isinstance(value, torch.Tensor) and (
            value.dtype != tensor.dtype or value.device != tensor.device
        ):
            conversion = (
                f" ({tensor.dtype} on {tensor.device} to {value.dtype} on {value.device}: give "
                "param_dtype or device to zinf.prepare() instead)"
            )
    _refuse(tensor._zinf, f"setting its .data{conversion}")


def _set_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args[1] is not None:
        raise ReadOnlyParameter(
            f"parameter '{args[0]._zinf.name}' has its gradient in zinf's memory, and its .grad is "
            "always None: it cannot be set"
        )
    args[0]._zinf.unit.engine.was_zeroed = True
    with NoDispatch():
        func(*args, **kwargs)


def _get_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # `if p.grad is not None: p.grad.zero_()` is a zero_grad() as well.
    args[0]._zinf.unit.engine.was_zeroed = True
    with NoDispatch():
        return func(*args, **kwargs)


def _set_requires_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    flag = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    slot = args[0]._zinf
    if flag and isinstance(args[0], torch.nn.Parameter) and not slot.is_trained:
        raise ZinfError(
            f"parameter '{slot.name}' was frozen, or in no optimizer, when zinf.prepare() was "
            "called, so that zinf has no gradient for it: set requires_grad before prepare()"
        )
    with NoDispatch():
        return func(*args, **kwargs)


# ---- what leaves torch ----


def _to_numpy(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a copy, and read-only: a write to it could not reach the parameter."""
    unit = args[0]._zinf.unit
    unit.hold()
    try:
        with NoDispatch():
            array = func(*args, **kwargs).copy()
    finally:
        unit.release()
    array.flags.writeable = False
    return array


def _to_dlpack(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(plain(args[0]), *args[1:], **kwargs)


def _to_cuda_array(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with NoDispatch():
        if not args[0].is_cuda:
            return func(*args, **kwargs)  # torch's AttributeError
    raise ReadOnlyParameter(
        f"parameter '{args[0]._zinf.name}' lies in zinf's memory, and __cuda_array_interface__ "
        "would give the address of values that go. Use that of a clone()"
    )


def _to_storage(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StorageView:
    return StorageView(args[0]._zinf)


def _share_memory(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise ReadOnlyParameter(
        f"parameter '{args[0]._zinf.name}' lies in zinf's memory, which share_memory_() cannot "
        "move: ranks of a node share it already"
    )


# ---- functions that torch does not bring here ----

_stock_tensor: Any = torch.tensor


@functools.wraps(_stock_tensor)
def _tensor(data: Any, *args: Any, **kwargs: Any) -> Any:
    return _stock_tensor(plain(data) if isinstance(data, Guarded) else data, *args, **kwargs)


_stock_backward: Any = torch.autograd.backward


@functools.wraps(_stock_backward)
def _backward(*args: Any, **kwargs: Any) -> None:
    create_graph = args[3] if len(args) > 3 else kwargs.get("create_graph")
    inputs = args[5] if len(args) > 5 else kwargs.get("inputs")
    if inputs is not None and not create_graph:  # As in _differentiate().
        _refuse_inputs("backward(inputs=...)", inputs)
    _stock_backward(*args, **kwargs)


def _refuse_model(stock: Any) -> Any:
    @functools.wraps(stock)
    def function(*args: Any, **kwargs: Any) -> Any:
        model = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(model, torch.nn.Module):
            for item in model.parameters():
                if isinstance(item, Guarded):
                    raise ZinfError(
                        f"torch.jit.{stock.__name__}() of a model in zinf: the made module would "
                        f"use memory that zinf takes away (parameter '{item._zinf.name}'). Give it "
                        "a copy.deepcopy(model)"
                    )
        return stock(*args, **kwargs)

    return function


def _copy_first(stock: Any) -> Any:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        copied = [plain(value) if isinstance(value, Guarded) else value for value in args]
        return stock(self, *copied, **kwargs)

    return method


def _refuse_first(stock: Any) -> Any:
    @functools.wraps(stock)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        for value in (self, *args, *kwargs.values()):
            if isinstance(value, Guarded):
                _refuse(value._zinf, f"{stock.__name__}()")
        return stock(self, *args, **kwargs)

    return method


def _construct(self: Any, *args: Any, **kwargs: Any) -> None:
    """Guard the tensor that torch.Tensor(p) made: it shares the memory of p."""
    data = args[0] if args else None
    if isinstance(data, Guarded) and not isinstance(self, Guarded):
        guard(self, data._zinf)


def install() -> None:
    """Guard the functions that read or replace memory without asking __torch_function__."""
    if torch.tensor is _tensor:
        return
    tensor_class: Any = torch.Tensor
    tensor_class.new_tensor = _copy_first(tensor_class.new_tensor)
    tensor_class.new = _copy_first(tensor_class.new)
    tensor_class.set_ = _refuse_first(tensor_class.set_)
    tensor_class.__init__ = _construct  # torch has none
    torch.autograd.backward = _backward
    register: Any = getattr(torch.jit._builtins, "_register_builtin", None)
    if register is not None:
        register(_tensor, "aten::tensor")  # so that torch.jit.script() knows it
        torch.tensor = _tensor
    for name in ("script", "trace", "trace_module"):
        setattr(torch.jit, name, _refuse_model(getattr(torch.jit, name)))


# ---- which function is what ----


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_META = _words(
    """
    size dim ndimension numel nelement stride storage_offset is_contiguous element_size
    __len__ __hash__ get_device is_floating_point is_complex is_signed is_inference
    register_hook register_post_accumulate_grad_hook retain_grad has_names _is_view
    is_conj is_neg is_same_size is_set_to _is_zerotensor result_type can_cast dim_order __dir__
    is_coalesced rename_ _has_compatible_shallow_copy_type requires_grad
    """
)
_META_GETS = _words(
    """
    shape dtype device layout ndim is_leaf requires_grad grad_fn grad_dtype is_sparse
    is_sparse_csr is_cuda is_cpu is_meta is_quantized is_mkldnn is_xpu is_mps is_nested is_ipu
    is_ort is_xla is_hpu is_maia is_mtia is_vulkan _version names name output_nr retains_grad
    _backward_hooks _post_accumulate_grad_hooks itemsize nbytes volatile _cdata _grad_fn
    _has_symbolic_sizes_strides
    """
)
_VIEWS = _words(
    """
    detach view view_as t transpose permute unsqueeze squeeze expand expand_as narrow unbind chunk
    split split_with_sizes tensor_split hsplit vsplit dsplit unflatten swapaxes swapdims movedim
    moveaxis diagonal select as_strided unfold alias adjoint broadcast_to
    data T mT H mH real
    """
)
_WRITES = _words(
    """
    __setitem__ __iadd__ __isub__ __imul__ __idiv__ __itruediv__ __ifloordiv__ __imod__ __ipow__
    __iand__ __ior__ __ixor__ __ilshift__ __irshift__ __setstate__ module_load
    """
)
_SPECIAL: dict[str, Handler] = {
    "numpy": _to_numpy,
    "__array__": _to_numpy,
    "__dlpack__": _to_dlpack,
    "__cuda_array_interface__": _to_cuda_array,
    "storage": _to_storage,
    "_storage": _to_storage,
    "untyped_storage": _to_storage,
    "_typed_storage": _to_storage,
    "share_memory_": _share_memory,
    "data_ptr": _address,
    "is_shared": _no,
    "is_pinned": _no,
    "requires_grad_": _set_requires_grad,
    "linear": _linear,
    "grad": _differentiate,
    "embedding": _embed,
    "embedding_bag": _embed,
    "batch_norm": _normalize,
    "instance_norm": _normalize,
    "native_batch_norm": _normalize,
}
_SETS: dict[str, Handler] = {
    "data": _set_data,
    "grad": _set_grad,
    "requires_grad": _set_requires_grad,
}
_handlers: dict[Any, Handler] = {}


def _classify(func: Any) -> Handler:
    name = _name_of(func)
    wrapper = getattr(func, "__name__", "")
    is_builtin_embedding = name.startswith("embedding") and not _is_python(func)
    handler: Handler = _compute
    if wrapper == "__set__":
        handler = _SETS.get(name, _meta)
    elif wrapper == "__get__" and name == "grad":
        handler = _get_grad
    elif wrapper == "__delete__" or (wrapper == "__get__" and name in _META_GETS):
        handler = _meta
    elif name in _SPECIAL and not is_builtin_embedding:
        handler = _SPECIAL[name]
    elif name in _META:
        handler = _meta
    elif name in _VIEWS:
        handler = _view
    elif name in _WRITES or (name.endswith("_") and not name.endswith("__")):
        handler = _write
    else:
        option = _inplace_position(func)
        if option is not None:
            handler = _write_if(option, "inplace")
    return handler


def _is_python(func: Any) -> bool:
    return hasattr(func, "__code__")


def _inplace_position(func: Any) -> int | None:
    """Return the place of a parameter `inplace` of a function of torch.nn.functional."""
    if not _is_python(func):
        return None
    try:
        names = list(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return None
    return names.index("inplace") if "inplace" in names else None
