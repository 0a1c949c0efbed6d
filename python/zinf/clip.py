# SPDX-License-Identifier: Apache-2.0
"""torch.nn.utils.clip_grad_norm_ for parameters in zinf.

Their .grad is None, so that torch's function would return 0 and clip nothing. install() puts a
wrapper in its place. For other parameters the wrapper calls torch's function.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import torch

from .errors import InvalidArgument
from .module.engine import Engine, living_engines
from .module.parameter import Guarded

__all__ = ["clip_grad_norm_", "install"]

_stock_norm: Any = torch.nn.utils.clip_grad_norm_
_stock_value: Any = torch.nn.utils.clip_grad_value_


def _split(parameters: Any) -> tuple[Engine | None, list[Any], list[Any]]:
    """Return the engine, its parameters, and the others."""
    items = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    ours = [item for item in items if isinstance(item, Guarded)]
    engines = {id(item._zinf.unit.engine): item._zinf.unit.engine for item in ours}
    if len(engines) > 1:
        raise InvalidArgument("clip_grad_norm_: parameters of two prepared models; clip each model")
    others = [item for item in items if not isinstance(item, Guarded)]
    return next(iter(engines.values()), None), ours, others


def clip_grad_norm_(
    parameters: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> torch.Tensor:
    """Clip the gradients of parameters, and return their global norm before, over all ranks.

    Of a model in zinf all trained parameters are given; the step then clips by max_norm.
    Collective in this case. norm_type: 2. For other parameters torch's function is called.
    """
    engine, ours, others = _split(parameters)
    if engine is None:
        _check_some("clip_grad_norm_", others)
        options = {} if foreach is None else {"foreach": foreach}
        return _stock_norm(others, max_norm, norm_type, error_if_nonfinite, **options)  # type: ignore[no-any-return]
    if float(norm_type) != 2.0:
        raise InvalidArgument(
            f"clip_grad_norm_: norm_type is {norm_type}; zinf has the 2-norm only"
        )
    _check_all(engine, ours)
    gradients = [item.grad for item in others if item.grad is not None]
    norm = engine.current_norm()
    squares = sum(float(gradient.detach().norm()) ** 2 for gradient in gradients)
    total = math.sqrt(norm * norm + squares) if squares else norm
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"The total norm of order 2.0 for gradients from `parameters` is {total}, so it cannot "
            "be clipped. Set error_if_nonfinite=False to scale by it anyway"
        )
    if squares:
        factor = min(1.0, float(max_norm) / (total + 1e-6))
        for gradient in gradients:
            gradient.detach().mul_(factor)
        max_norm = factor * (norm + 1e-6)
    engine.clip_grad_norm_(float(max_norm))
    return torch.tensor(total, dtype=torch.float32)


def _check_some(name: str, others: list[Any]) -> None:
    """Refuse an empty list while gradients wait in zinf: `if p.grad is not None` left all out."""
    if not others and any(engine.has_begun for engine in living_engines()):
        raise InvalidArgument(
            f"{name}: no parameters are given, and a prepared model has gradients. Parameters in "
            "zinf have no .grad: give model.parameters()"
        )


def _check_all(engine: Engine, ours: list[Any]) -> None:
    given = {id(item) for item in ours}
    missing = [
        slot.name
        for unit in engine.units
        for slot in unit.trained
        if id(slot.parameter) not in given
    ]
    if missing:
        raise InvalidArgument(
            f"clip_grad_norm_: {len(missing)} trained parameters of the model are not given, such "
            f"as '{missing[0]}'; zinf clips by the norm of all: give model.parameters()"
        )


def clip_grad_value_(parameters: Any, clip_value: float, *args: Any, **kwargs: Any) -> None:
    """Refuse parameters in zinf; for others call torch's function."""
    items = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    _check_some("clip_grad_value_", items)
    if any(isinstance(item, Guarded) for item in items):
        raise InvalidArgument(
            "clip_grad_value_: zinf clips by the norm only, use torch.nn.utils.clip_grad_norm_"
        )
    _stock_value(items, clip_value, *args, **kwargs)


def install() -> None:
    """Put the wrappers into torch.nn.utils. May be called again."""
    for name, stock, ours in (
        ("clip_grad_norm_", _stock_norm, clip_grad_norm_),
        ("clip_grad_value_", _stock_value, clip_grad_value_),
    ):
        wrapped = functools.wraps(stock)(ours)
        for module in list(sys.modules.values()):
            # Also where a script wrote `from torch.nn.utils import clip_grad_norm_`.
            if getattr(module, "__dict__", {}).get(name) is stock:
                setattr(module, name, wrapped)
