# SPDX-License-Identifier: Apache-2.0
"""FSDPModule: the methods that fully_shard() gives to a module.

The module keeps its object; its class becomes a subclass. zinf has one reduction for a step, so
what says when gradients are reduced belongs to the root.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, Callable

import torch
from torch import nn

from ..errors import InvalidArgument, Unsupported, ZinfError
from ..module import hooks
from . import shard as shards
from .shard import Shard, shard_of

__all__ = ["FSDPModule", "UnshardHandle", "register_fsdp_forward_method"]


class UnshardHandle:
    """What unshard(async_op=True) returns."""

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard

    def wait(self) -> None:
        """Wait until the parameters are present."""
        shard, self._shard = self._shard, None
        if shard is not None and shard.unit is not None:
            shard.unit.pin()


class FSDPModule:
    """What a module can do after fully_shard(): FSDP2's methods, by their names.

    Methods are not recursive, unless `recurse` says so. Before the model has moved into zinf, its
    parameters are all present.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run forward. torch.compile() runs the module as it is."""
        dynamo = sys.modules.get("torch._dynamo")
        if dynamo is None:
            return _run(self, args, kwargs)
        return _uncompiled(dynamo)(self, args, kwargs)

    __call__._torchdynamo_disable = True  # type: ignore[attr-defined]

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy or pickle the module as one of its own class, with plain parameters."""
        state = {name: value for name, value in vars(self).items() if name != shards._NAME}
        return _make, (type(self).__mro__[2],), state

    # ---- parameters come and go ----

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Have the parameters present until reshard(), or until the next forward or step ends.

        async_op: only start, and return a handle; forward waits by itself.
        """
        shard = self._zinf()
        if shard.unit is not None and shard.engine is not None:
            if async_op:
                shard.engine.session.prefetch(shard.unit.index)
            else:
                shard.unit.pin()
        return UnshardHandle(shard) if async_op else None

    def reshard(self) -> None:
        """Give the parameters back. A forward or backward pass that uses them keeps them."""
        unit = self._zinf().unit
        if unit is not None:
            unit.unpin()
            unit.unkeep()

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Say whether the parameters go after forward, and come again for backward."""
        check_reshard(reshard_after_forward)
        for shard in self._shards(recurse):
            shard.reshards = reshard_after_forward
            shard.take_options()

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, recurse: bool = True
    ) -> None:
        """Say whether the parameters go after backward. False: they stay until the step."""
        for shard in self._shards(recurse):
            shard.reshards_after_backward = bool(reshard_after_backward)
            shard.take_options()

    def set_modules_to_forward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Name the modules whose parameters forward of this one brings in advance."""
        shard = self._zinf()
        shard.forward_prefetch = _shards_of(modules)
        shard.take_options()

    def set_modules_to_backward_prefetch(self, modules: list[FSDPModule]) -> None:
        """Name the modules whose parameters backward of this one brings in advance."""
        shard = self._zinf()
        shard.backward_prefetch = _shards_of(modules)
        shard.take_options()

    # ---- gradients ----

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Say whether the next backward passes are the last ones of their step. Of the root.

        False: they only accumulate, in zinf's buffers.
        """
        shard = self._zinf()
        is_last = bool(requires_gradient_sync)
        if shard.engine is None:
            shard.is_last = is_last
        elif shard.module is shard.engine.model:
            shard.engine.set_sync(is_last)
        elif is_last == (shard.engine.gradients.no_sync_depth > 0):
            raise Unsupported(
                "set_requires_gradient_sync() of a part of the model: zinf reduces all gradients "
                "of a step together. Call it of the root"
            )

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Say whether backward passes of this step follow. As set_requires_gradient_sync()."""
        self.set_requires_gradient_sync(is_last_backward)

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Refuse False: copies of a shard are reduced together with it."""
        if not requires_all_reduce:
            _refuse("set_requires_all_reduce(False)", "use set_requires_gradient_sync(False)")

    def reset_iter_state(self) -> None:
        """Forget the gradients of a step that an exception ended. Collective."""
        engine = self._zinf().engine
        if engine is not None:
            engine.discard()

    # ---- what zinf does not have ----

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Refused."""
        _refuse("set_gradient_divide_factor()", "zinf averages over ranks; scale the loss")

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_all_reduce_hook(self, *_: Any, **__: Any) -> None:
        """Refused."""
        _refuse("set_all_reduce_hook()", "the daemon reduces gradients")

    def set_custom_all_gather(self, *_: Any) -> None:
        """Refused."""
        _refuse("set_custom_all_gather()", "the daemon brings parameters")

    def set_custom_reduce_scatter(self, *_: Any) -> None:
        """Refused."""
        _refuse("set_custom_reduce_scatter()", "the daemon reduces gradients")

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Do nothing: backward brings the parameters of which it needs values."""

    def set_post_optim_event(self, event: Any) -> None:
        """Do nothing: a forward waits for the step before it."""

    # ---- own ----

    def _zinf(self) -> Shard:
        shard = shard_of(self)  # type: ignore[arg-type]
        if shard is None:
            raise InvalidArgument(
                f"{type(self).__name__} is a copy of a module of fully_shard(): call it again"
            )
        return shard

    def _shards(self, recurse: bool) -> Iterator[Shard]:
        own = self._zinf()
        for module in own.module.modules() if recurse else [own.module]:
            shard = shard_of(module)
            if shard is not None:
                yield shard


def _refuse(what: str, remedy: str) -> None:
    raise Unsupported(f"{what} of a module in zinf: {remedy}")


def check_reshard(value: Any) -> None:
    """Refuse other values of reshard_after_forward than True, False and None."""
    if value is not None and not isinstance(value, bool):
        raise Unsupported(
            f"reshard_after_forward is {value!r}: zinf has True, False and None, as the ranks of a "
            "node share the parameters that are present"
        )


def _shards_of(modules: Any) -> list[Shard]:
    found = []
    for module in modules:
        shard = shard_of(module) if isinstance(module, nn.Module) else None
        if shard is None:
            raise InvalidArgument(
                f"prefetch of a {type(module).__name__}: call fully_shard() of it first"
            )
        found.append(shard)
    return found


def _make(kind: type[nn.Module]) -> nn.Module:
    return kind.__new__(kind)


# ---- forward ----


def _run(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    shard = shard_of(module)
    stock: Callable[..., Any] = super(FSDPModule, module).__call__
    if shard is None:
        return stock(*args, **kwargs)
    if shard.engine is None:
        _move_for_inference(shard)
    dtype = shard.precision.input_dtype if shard.engine is not None else None
    if dtype is not None:
        args, kwargs = _cast(args, dtype), _cast(kwargs, dtype)
    result = stock(*args, **kwargs)
    if shard.precision.output_dtype is not None:
        result = _cast(result, shard.precision.output_dtype)
    if shard.engine is None and torch.is_grad_enabled():
        tensor = hooks.first_differentiable(result)
        if tensor is not None and tensor.grad_fn is not None:
            tensor.register_hook(_refuse_backward)
    return result


def _refuse_backward(_: Any) -> None:
    raise ZinfError(
        "backward through a model of fully_shard() whose forward ran before it had an optimizer: "
        "make the optimizer from model.parameters() after fully_shard(model), then run forward"
    )


def _move_for_inference(shard: Shard) -> None:
    root = shards.outermost(list(shard.module.parameters()))
    if root and _is_forward_only(root[0]):
        shards.move(root[0], None)


def _is_forward_only(root: Shard) -> bool:
    for module in root.module.modules():
        shard = shard_of(module)
        if shard is not None:
            if shard.settings.get("is_forward_only"):
                return True
            if getattr(shard.source, "is_forward_only", False):
                return True
    return False


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """Convert the floats in a value."""

    def convert(item: Any) -> Any:
        if isinstance(item, torch.Tensor) and item.is_floating_point() and item.dtype != dtype:
            return item.to(dtype)
        return item

    return torch.utils._pytree.tree_map(convert, value)


_disabled: Any = None
_has_warned = False


def _uncompiled(dynamo: Any) -> Any:
    """Return _run() as torch.compile() leaves it alone. Says once that a model is not compiled."""
    global _disabled, _has_warned  # noqa: PLW0603 - once for the process
    if _disabled is None:
        _disabled = dynamo.disable(_run)
    if not _has_warned:
        callback: Any = getattr(
            getattr(torch._C._dynamo, "eval_frame", None), "get_eval_frame_callback", None
        )
        if callback is not None and callable(callback()):
            _has_warned = True
            warnings.warn(
                "torch.compile(): a model of zinf.fully_shard() runs uncompiled, as compiled code "
                "would use memory that zinf takes away",
                stacklevel=4,
            )
    return _disabled


def register_fsdp_forward_method(module: nn.Module, method_name: str) -> None:
    """Do nothing: each method of a module in zinf may use its parameters. FSDP2 needs the call."""
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
