# SPDX-License-Identifier: Apache-2.0
"""zinf.init(): build a model that does not fit into memory.

Inside the block a parameter gets one element of memory instead of its own. Operations that give it
values (torch.nn.init and the like) run on a temporary tensor, so that the random numbers are those
of an ordinary start, and are noted with the state of the generator. zinf.prepare() repeats them
for one unit at a time, in zinf's memory. So the values have the bits of an ordinary start, and
memory holds one unit.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from typing import Any, Callable

import torch
from torch import nn

from .parameter import NoDispatch, _classify, _name_of

__all__ = ["fill", "init", "is_pending", "settle"]

# An operation: the views that lead from the parameter to its target, the function, its arguments,
# and the state of the random generator before it.
Record = tuple[tuple[Any, ...], Any, tuple[Any, ...], dict[str, Any], torch.Tensor]

_words = str.split

# glibc keeps freed memory that small blocks surround. Returned: what large parameters leave.
_trim: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
_TRIM_BYTES = 1 << 20

# Functions that overwrite all of their target, without reading it.
_OVERWRITES = _words(
    "normal_ uniform_ zero_ fill_ zeros_ ones_ constant_ xavier_uniform_ xavier_normal_ "
    "kaiming_uniform_ kaiming_normal_ trunc_normal_ orthogonal_ eye_ copy_ exponential_"
)
# Functions that use no random numbers.
_CERTAIN = _words(
    "zero_ fill_ zeros_ ones_ constant_ eye_ copy_ mul_ add_ sub_ div_ clamp_ clamp_min_ "
    "clamp_max_ erfinv_ neg_ sqrt_ pow_ exp_ log_ __setitem__ __imul__ __iadd__ __isub__"
)


# What a handler of parameter.py means for a parameter without values. Any other one reads.
_KINDS = {
    "_meta": "meta",
    "_address": "meta",
    "_no": "meta",
    "_get_grad": "meta",
    "_view": "view",
    "_write": "write",
}


class _Recipe:
    """How to make the values of a parameter."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.shape = tuple(parameter.shape)
        self.dtype = parameter.dtype
        self.byte_count = parameter.numel() * parameter.element_size()
        self.start: torch.Tensor | None = None  # values that the parameter was made with
        self.records: list[Record] = []

    def make(self, target: torch.Tensor) -> None:
        """Write the values into `target`. The generator's state stays."""
        state = torch.get_rng_state()
        with torch.no_grad():
            if self.start is not None:
                target.copy_(self.start)
            for path, func, args, kwargs, before in self.records:
                torch.set_rng_state(before)
                _run(target, path, func, args, kwargs)
        torch.set_rng_state(state)

    def tensor(self) -> torch.Tensor:
        """Return the values in memory of their own."""
        made = torch.empty(self.shape, dtype=self.dtype)
        self.make(made)
        return made


def _run(
    target: torch.Tensor,
    path: tuple[Any, ...],
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    for view, view_args, view_kwargs in path:
        target = view(target, *view_args, **view_kwargs)
    return func(target, *args, **kwargs)


class _Pending:
    """A parameter without values, or a view of it."""

    __slots__ = ()
    _zinf_recipe: _Recipe
    _zinf_path: tuple[Any, ...]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not args and kwargs:  # torch.nn.init names all of its arguments
            args = (kwargs.pop(next(iter(kwargs))),)
        kind = _kind(func)
        target = args[0] if args else None
        if isinstance(target, _Pending):
            if kind == "view":
                with NoDispatch():
                    result = func(*args, **kwargs)
                if isinstance(result, torch.Tensor) and result is not args[0]:
                    result.__class__ = _PendingTensor
                    result._zinf_recipe = target._zinf_recipe  # type: ignore[attr-defined]
                    result._zinf_path = (  # type: ignore[attr-defined]
                        *target._zinf_path,
                        (func, args[1:], kwargs),
                    )
                return result
            if kind == "write":
                return _note(target, func, args[1:], kwargs)
        if kind == "set_data":
            settle(target)
        if kind in ("meta", "set_data"):
            with NoDispatch():
                return func(*args, **kwargs)
        # A read: of values that are made for it.
        with NoDispatch():
            return func(*_made(args), **dict(zip(kwargs, _made(tuple(kwargs.values())))))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = _copy(self)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _copy(self).__reduce_ex__(protocol)


class _PendingParameter(_Pending, nn.Parameter):
    """A parameter that is built inside init()."""


class _PendingTensor(_Pending, torch.Tensor):
    """A view of one."""


def _kind(func: Any) -> str:
    wrapper, name = getattr(func, "__name__", ""), _name_of(func)
    if wrapper == "__set__":
        return "set_data" if name == "data" else "meta"
    if name == "requires_grad_":
        return "meta"
    handler: Any = _classify(func)
    if name == "__getitem__":
        return "view"
    return _KINDS.get(handler.__name__, "read")


def _values(tensor: Any) -> torch.Tensor:
    """Return the values of a pending tensor in memory of their own."""
    with NoDispatch(), torch.no_grad():
        made = tensor._zinf_recipe.tensor()
        for view, args, kwargs in tensor._zinf_path:
            made = view(made, *args, **kwargs)
    return made  # type: ignore[no-any-return]


def _made(values: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, _Pending):
            found.append(_values(value))
        elif isinstance(value, (list, tuple)):
            found.append(type(value)(_made(tuple(value))))
        else:
            found.append(value)
    return tuple(found)


def _copy(tensor: Any) -> Any:
    made = _values(tensor)
    if isinstance(tensor, nn.Parameter):
        with NoDispatch():
            return nn.Parameter(made, tensor.requires_grad)
    return made


def _note(target: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a write on temporary values, so that random numbers are used up, and note it."""
    recipe, path = target._zinf_recipe, target._zinf_path
    args = _made(args)
    name = _name_of(func)
    is_whole = not path or all(_name_of(view) in ("data", "detach") for view, _, _ in path)
    is_overwrite = is_whole and name in _OVERWRITES
    before = torch.get_rng_state()
    with NoDispatch(), torch.no_grad():
        if is_overwrite:
            recipe.records.clear()
            recipe.start = None
        if name in _CERTAIN:
            pass
        elif is_overwrite:
            trial = torch.empty(recipe.shape, dtype=recipe.dtype)
            _run(trial, path, func, args, kwargs)  # for its random numbers alone
        else:
            _run(recipe.tensor(), path, func, args, kwargs)
    args = tuple(a.clone() if isinstance(a, torch.Tensor) else a for a in args)
    recipe.records.append((path, func, args, kwargs, before))
    if recipe.byte_count >= _TRIM_BYTES and _trim is not None:
        _trim(0)
    return target


def _begin(parameter: nn.Parameter) -> None:
    """Take the memory of a parameter away, and keep how to make its values."""
    recipe = _Recipe(parameter)
    recipe.start = _constant(parameter.data)
    parameter.data = torch.zeros((), dtype=parameter.dtype).expand(recipe.shape)
    parameter.__class__ = _PendingParameter
    pending: Any = parameter
    pending._zinf_recipe, pending._zinf_path = recipe, ()


def _constant(values: torch.Tensor) -> torch.Tensor:
    """Return one element if all are equal, else the values."""
    flat = values.reshape(-1)
    first = flat[:1].clone()
    is_same = bool((flat == first).all()) if flat.numel() else True
    return first.reshape(()) if is_same else values.clone()


@contextlib.contextmanager
def init() -> Iterator[None]:
    """Build a model inside the block without memory for its parameters.

    The values are made by zinf.prepare(), unit by unit, with the bits of an ordinary start. A model
    of transformers' from_pretrained() is read from its files then.
    """
    stock: Callable[..., None] = nn.Module.register_parameter

    def register(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        stock(module, name, param)
        if (
            type(param) is nn.Parameter
            and param.device.type == "cpu"
            and param.numel() > 1
            and param.is_floating_point()
        ):
            _begin(param)

    with_transformers: Any = contextlib.nullcontext()
    if "transformers" in sys.modules:
        from ..pretrained import deferred  # noqa: PLC0415 - it needs transformers

        with_transformers = deferred()
    setattr(nn.Module, "register_parameter", register)  # noqa: B010 - a method of torch
    try:
        with with_transformers:
            yield
    finally:
        setattr(nn.Module, "register_parameter", stock)  # noqa: B010 - likewise


def is_pending(parameter: Any) -> bool:
    """Whether a parameter was built inside init() and has no memory yet."""
    return isinstance(parameter, _Pending)


def fill(parameter: Any, view: torch.Tensor) -> bool:
    """Write the values of a parameter that was built inside init(). False: it was not."""
    if not is_pending(parameter):
        return False
    parameter._zinf_recipe.make(view)
    return True


def settle(parameter: Any) -> None:
    """Make a pending parameter an ordinary one, whose memory is set next."""
    if is_pending(parameter):
        del parameter._zinf_recipe, parameter._zinf_path
        parameter.__class__ = nn.Parameter
