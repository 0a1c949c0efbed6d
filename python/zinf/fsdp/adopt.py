# SPDX-License-Identifier: Apache-2.0
"""From the optimizer of a script to zinf's.

A script of FSDP2 makes torch's optimizer from the parameters. Where they belong to a model of
fully_shard(), the same object becomes zinf's when it is made: its class becomes a subclass of
zinf.optim's and of its own. The model moves into zinf at this moment. Optimizers that zinf does not
compute are refused. An optimizer that was made before fully_shard() is refused at its first step.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .. import optim
from ..errors import InvalidArgument
from ..module.parameter import Guarded
from . import shard as shards

__all__ = ["install"]

_KINDS: dict[type, type[optim.ZinfOptimizer]] = {
    torch.optim.AdamW: optim.AdamW,
    torch.optim.Adam: optim.Adam,
    torch.optim.SGD: optim.SGD,
    torch.optim.Adagrad: optim.Adagrad,
    **{kind: kind for kind in optim.KINDS.values()},
}
_classes: dict[tuple[type, type], type] = {}


def _parameters(optimizer: Any) -> list[Any]:
    return [item for group in optimizer.param_groups for item in group["params"]]


def _root(optimizer: Any) -> shards.Shard | None:
    """Return the root whose parameters an optimizer has; None: no parameters of fully_shard()."""
    items = _parameters(optimizer)
    roots = shards.outermost(items)
    if not roots:
        return None
    if any(root.engine is not None for root in roots):
        raise InvalidArgument(
            f"{type(optimizer).__name__}: the parameters have an optimizer already, which is "
            "zinf's. Make one optimizer for a model"
        )
    known = {id(item) for root in roots for item in root.module.parameters()}
    lost = [item for item in items if id(item) not in known]
    if len(roots) > 1 or lost:
        shape = f" (one of shape {tuple(lost[0].shape)})" if lost else ""
        raise InvalidArgument(
            f"{type(optimizer).__name__} has parameters of {len(roots)} modules of fully_shard(), "
            f"and {len(lost)} of none{shape}: call fully_shard(model) of the whole model before "
            "the optimizer is made"
        )
    return roots[0]


def _adopt(optimizer: Any) -> None:
    """Make an optimizer zinf's, if it has parameters of fully_shard(). Moves the model."""
    root = _root(optimizer)
    if root is None:
        return
    former = type(optimizer)
    kind = _KINDS[former]
    groups = optimizer.param_groups
    if former is torch.optim.Adam and groups[0].get("decoupled_weight_decay"):
        kind = optim.AdamW
    for number, group in enumerate(groups):
        optim.check_group(kind.kind, group, number)
    optimizer.state.clear()  # Adagrad makes zeros when it is made.
    if kind is not former:
        made = _classes.get((kind, former))
        if made is None:
            made = _classes[kind, former] = type(former.__name__, (kind, former), {})
        optimizer.__class__ = made
        for name in ("_patch_step_function", "_hook_for_profile"):  # 2.x has the first
            patch = getattr(optimizer, name, None)
            if patch is not None:
                patch()
                break
    try:
        shards.move(root, optimizer)
    except BaseException:
        optimizer.__class__ = former
        raise


def _check_kind(optimizer: Any) -> None:
    """Refuse an optimizer over parameters of fully_shard() that zinf does not compute."""
    if type(optimizer) in _KINDS or isinstance(optimizer, optim.ZinfOptimizer):
        return
    items = _parameters(optimizer)
    if any(isinstance(item, Guarded) for item in items) or shards.outermost(items):
        kind = type(optimizer)
        raise InvalidArgument(
            f"{kind.__module__}.{kind.__qualname__} over parameters of fully_shard(): zinf "
            "computes AdamW, Adam, SGD and Adagrad of torch.optim, and those of zinf.optim"
        )


def _after(stock: Any, call: Any, kind: type | None) -> Any:
    @functools.wraps(stock)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, **kwargs)
        if kind is None or type(self) is kind:
            call(self)

    init._zinf_is_wrapped = True  # type: ignore[attr-defined]
    return init


def install() -> None:
    """See optimizers that are made from now on. May be called again."""
    base: Any = torch.optim.Optimizer
    if getattr(base.__init__, "_zinf_is_wrapped", False):
        return
    base.__init__ = _after(base.__init__, _check_kind, None)
    for item in _KINDS:
        kind: Any = item
        kind.__init__ = _after(kind.__init__, _adopt, kind)
