# SPDX-License-Identifier: Apache-2.0
"""zinf.prepare(): put zinf under a model and its optimizer."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

import torch
from torch import nn

from . import clip, optim, private
from .config import Config, Source
from .errors import InvalidArgument
from .libzinf import load
from .libzinf.structures import Offload
from .module import budgets, parameter, units
from .module import device as devices
from .module.engine import Engine, engine_of
from .session import Session
from .width import width_of

__all__ = ["prepare"]

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def prepare(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None = None,
    config: Source = None,
    *,
    private_dir: str | None = None,
    snapshot: str | None = None,
    blocks: units.Blocks = None,
    **settings: Any,
) -> tuple[nn.Module, Any]:
    """Put a model's parameters, gradients and optimizer state into zinf.

    The model keeps its object and its Parameter objects. A new job begins with the model's values
    (those of rank 0), a job that has a committed step with its own. With the setting `device` of a
    GPU the parameters become CUDA tensors, and buffers are moved there. Collective.

    optimizer: one of zinf.optim, or torch's AdamW, Adam, SGD or Adagrad before its first step.
        The returned one shares its param_groups, so that schedulers made before still act. None: a
        model for inference (is_forward_only), or steps by Engine.step().
    config: settings: a Config, a dict, or DeepSpeed's configuration; zinf.Config lists all names.
    private_dir: start a private daemon with this directory where none runs.
    snapshot: "JOB/NAME", with which a new job begins.
    blocks: classes or names of the modules that become units; None: the repeated blocks.
    settings: override config.
    Return: the model and the optimizer. zinf.engine_of(model) is its engine.
    """
    if isinstance(model, torch.optim.Optimizer) or not isinstance(model, nn.Module):
        raise InvalidArgument(f"prepare() needs a torch.nn.Module, not {type(model).__name__}")
    if engine_of(model) is not None:
        raise InvalidArgument("the model is prepared already: call zinf.prepare() once")
    _refuse_scripted(model)
    merged = Config.load(config, private_dir=private_dir, **settings)
    plans = units.plan_units(model, blocks)
    if not plans:
        raise InvalidArgument("the model has no parameters that zinf could hold")
    device = devices.find(merged, (item for plan in plans for _, item in plan.parameters))
    dtype = units.check_parameters(plans, merged.param_dtype, device.place)
    groups = [] if optimizer is None else optimizer.param_groups
    group_of = _groups(model, groups, plans, optimizer is not None)
    made = None if optimizer is None else optim.convert(optimizer)
    merged = merged.replace(
        param_dtype=_DTYPES[dtype],
        optimizer=merged.optimizer if made is None else made.kind,
        group_count=max(1, len(groups)),
    )
    width = width_of(dtype)
    device.param_bytes = width * sum(plan.element_count() for plan in plans)
    merged = _with_budgets(merged, plans, width)
    if merged.private_dir is not None:
        elements = sum(item.numel() for plan in plans for _, item in plan.parameters)
        private.ensure(merged, load(), private.need_for(merged, elements, width))
    session = Session(merged)
    try:
        engine = Engine(
            session,
            model,
            functools.partial(optim.step_options, merged.optimizer),
            group_of,
            dtype=dtype,
            plans=plans,
            snapshot=snapshot,
            device=device,
        )
    except BaseException:
        session.close()
        raise
    if made is not None:
        made._zinf_engine = engine
        engine.groups_source = lambda: made.param_groups  # Accelerate replaces the list's dicts.
    clip.install()
    optim.install()
    parameter.install()
    return model, made


def _with_budgets(config: Config, plans: list[units.Plan], width: int) -> Config:
    """Return settings with budgets for the units, where the settings name none."""
    counts = [plan.element_count() for plan in plans]
    ranks = config.world_size or int(os.environ.get("WORLD_SIZE") or 1)
    if not config.param_budget_bytes and config.offload("offload_param") == Offload.NVME:
        config = config.replace(param_budget_bytes=budgets.param_budget(counts, width, ranks))
    if (
        config.update_early
        and not config.grad_budget_bytes
        and config.gradient_accumulation_steps == 1
        and config.offload("offload_optimizer") == Offload.NVME
    ):
        wide = width_of(getattr(torch, config.grad_dtype)) if config.grad_dtype else width
        config = config.replace(grad_budget_bytes=budgets.grad_budget(counts, wide, ranks))
    return config


def _refuse_scripted(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule) and any(True for _ in module.parameters()):
            raise InvalidArgument(
                f"module '{name or type(model).__name__}' was made by torch.jit.script() or "
                "torch.jit.trace(), whose code zinf cannot follow: prepare the model from which "
                "it was made"
            )


def _groups(
    model: nn.Module, groups: list[dict[str, Any]], plans: list[units.Plan], has_optimizer: bool
) -> dict[int, int]:
    """Return the parameter group by id of a parameter."""
    ours = {id(item): name for plan in plans for name, item in plan.parameters}
    if not has_optimizer:
        return dict.fromkeys(ours, 0)
    if len(groups) > 64:
        raise InvalidArgument(f"the optimizer has {len(groups)} parameter groups: at most 64")
    all_ids = {id(item) for item in model.parameters()}
    found: dict[int, int] = {}
    for number, group in enumerate(groups):
        for item in group["params"]:
            if id(item) not in all_ids:
                raise InvalidArgument(
                    f"a parameter of shape {tuple(item.shape)} in group {number} of the optimizer "
                    "is not in the model: make the optimizer from model.parameters()"
                )
            if item.requires_grad and item.numel() and id(item) not in ours:
                raise InvalidArgument(
                    f"a parameter of type {item.dtype} in group {number} of the optimizer: zinf "
                    "trains floats"
                )
            found[id(item)] = number
    left = [
        name
        for plan in plans
        for name, item in plan.parameters
        if item.requires_grad and id(item) not in found
    ]
    if left:
        more = f" and {len(left) - 4} more" if len(left) > 4 else ""
        warnings.warn(
            f"parameters {', '.join(left[:4])}{more} are in no group of the optimizer: zinf does "
            "not train them",
            stacklevel=3,
        )
    return found
