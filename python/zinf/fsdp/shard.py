# SPDX-License-Identifier: Apache-2.0
"""The options that fully_shard() got for a module, and the move of a whole model into zinf.

A call of fully_shard() only stores its options. The root is the outermost module of these calls.
The model moves into zinf when its optimizer is made, as the optimizer decides the size of the
state. A model for inference moves in its first forward. Until then torch holds the parameters.

A job without a name is scratch, as a script of FSDP2 expects: each run of the script begins a new
job, and the job ends with the script.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .. import scratch
from ..config import Config, check_names, is_deepspeed
from ..errors import InvalidArgument
from ..libzinf.structures import Offload
from ..module import units
from ..module.device import has_cuda
from ..module.engine import Engine, engine_of
from ..prepare import prepare
from .policy import MixedPrecisionPolicy

__all__ = ["Shard", "move", "outermost", "shard_of"]

_NAME = "_zinf_shard"
_PAGE = 2 << 20  # of the memory for parameters; the daemon takes small pages for a small model
_begun = 0  # models of this process with a scratch job


class Shard:
    """A module with its options of fully_shard()."""

    def __init__(
        self,
        module: nn.Module,
        precision: MixedPrecisionPolicy,
        reshards: bool | None,
        source: Any,
        settings: dict[str, Any],
    ) -> None:
        self._module = weakref.ref(module)
        self.precision = precision
        self.reshards = reshards  # after forward; None: unless it is the root
        self.reshards_after_backward = True
        self.is_last = True  # of set_requires_gradient_sync() before the move
        self.forward_prefetch: list[Shard] | None = None
        self.backward_prefetch: list[Shard] | None = None
        self.source = source
        self.settings = settings
        self.engine: Engine | None = None
        self.unit: units.Unit | None = None  # None: before the move, or without own parameters
        vars(module)[_NAME] = self
        _shards.add(self)

    @property
    def module(self) -> nn.Module:
        """The module. Only modules that exist are asked for their shard."""
        module = self._module()
        assert module is not None
        return module

    def take_options(self) -> None:
        """Give the unit the options that were set before or after the move."""
        unit = self.unit
        if unit is None:
            return
        reshards = not unit.is_rest if self.reshards is None else self.reshards
        unit.stays_after_forward = not reshards
        unit.stays_after_backward = not self.reshards_after_backward
        unit.following = {
            phase: [shard.unit for shard in shards if shard.unit is not None]
            for phase, shards in ((False, self.forward_prefetch), (True, self.backward_prefetch))
            if shards is not None
        }


_shards: weakref.WeakSet[Shard] = weakref.WeakSet()


def shard_of(module: nn.Module) -> Shard | None:
    """Return the options of a module; None: fully_shard() was not called of this module."""
    found: Shard | None = vars(module).get(_NAME)
    return found if found is not None and found._module() is module else None


def outermost(parameters: list[Any]) -> list[Shard]:
    """Return the outermost shards that have one of the parameters."""
    wanted = {id(item) for item in parameters}
    living = [shard for shard in list(_shards) if shard._module() is not None]
    found = [s for s in living if any(id(item) in wanted for item in s.module.parameters())]
    inside: set[int] = set()
    for shard in found:
        inside.update(id(module) for module in shard.module.modules() if module is not shard.module)
    return [shard for shard in found if id(shard.module) not in inside]


def move(root: Shard, optimizer: Any) -> None:
    """Move the model of an outermost shard into zinf. optimizer: zinf's; None: for inference."""
    members = [s for s in (shard_of(m) for m in root.module.modules()) if s is not None]
    source, settings = _merge(members, root)
    is_named = "job" in settings or bool(os.environ.get("ZINF_JOB"))
    config = _with_ranks(Config.load(source, **settings))
    if config.device is None and has_cuda():
        config = config.replace(device="cuda")
    is_scratch = not (is_named or config.job)
    if is_scratch:
        config = _begin_scratch(config)
    blocks = [shard.module for shard in members if shard is not root]
    if not config.param_budget_bytes and config.offload("offload_param") == Offload.NVME:
        config = config.replace(param_budget_bytes=_budget(root, members, blocks))
    prepare(root.module, optimizer, config, blocks=blocks)
    engine = engine_of(root.module)
    assert engine is not None
    if is_scratch:
        scratch.own(engine)
    unit_of = {id(unit.module): unit for unit in engine.units}
    for shard in members:
        shard.engine, shard.unit = engine, unit_of.get(id(shard.module))
    for shard in members:
        shard.take_options()
    if not root.is_last:
        engine.set_sync(is_last=False)


def _merge(members: list[Shard], root: Shard) -> tuple[Any, dict[str, Any]]:
    """Return config and settings of all calls. Raises InvalidArgument where two contradict."""
    source: Any = None
    settings: dict[str, Any] = {}
    for shard in members:
        if shard.source is not None:
            if source is not None and source != shard.source:
                raise InvalidArgument(
                    "fully_shard() got two configurations: give config= to one call, such as that "
                    "of the root"
                )
            source = shard.source
        for name, value in shard.settings.items():
            if settings.setdefault(name, value) != value:
                raise InvalidArgument(
                    f"fully_shard() got {name}={settings[name]!r} for one module and {value!r} for "
                    "another: zinf has one for the whole model"
                )
    check_names(settings)
    dtypes = {(s.precision.param_dtype, s.precision.reduce_dtype) for s in members}
    if len(dtypes) > 1:
        raise InvalidArgument(
            "the calls of fully_shard() have different mp_policy: zinf has one param_dtype and one "
            "reduce_dtype for the whole model; give each call the same policy"
        )
    first = next((p for p in root.module.parameters() if p.is_floating_point()), None)
    dtype = torch.float32 if first is None else first.dtype
    settings = {**root.precision.settings(dtype), **settings}
    if not _has_strategy(source):
        settings.setdefault("strategy", "zero3")
    return source, settings


def _has_strategy(source: Any) -> bool:
    """Whether a configuration or a variable names a strategy."""
    if source is None:
        return any(os.environ.get(f"ZINF_{name}") for name in ("STRATEGY", "DEEPSPEED_CONFIG"))
    if isinstance(source, Mapping) and not is_deepspeed(source):
        return "strategy" in source or bool(os.environ.get("ZINF_STRATEGY"))
    return True


def _budget(root: Shard, members: list[Shard], blocks: list[nn.Module]) -> int:
    """Return param_budget_bytes for units that stay, and units inside units. 0: the daemon's."""
    sizes: dict[int, int] = {}
    for plan in units.plan_units(root.module, blocks):
        count = sum(item.numel() * item.element_size() for _, item in plan.parameters)
        sizes[id(plan.module)] = -(-count // _PAGE) * _PAGE
    chains = [
        [m for m in shard.module.modules() if m is not shard.module and id(m) in sizes]
        for shard in members
        if shard is not root
    ]
    stay = [s for s in members if s.reshards is False or not s.reshards_after_backward]
    if not any(chains) and not stay:
        return 0
    largest = max(sizes.values(), default=0)
    kept = sum(sizes.get(id(shard.module), 0) for shard in {*stay, root})
    inner = max((sum(sizes[id(m)] for m in chain) for chain in chains), default=0)
    return kept + inner + 3 * largest


def _with_ranks(config: Config) -> Config:
    """Take rank and world size from torch.distributed, where a script has begun it."""
    if not _has_ranks():
        return config
    known: Any = torch.distributed
    given = {"rank": known.get_rank(), "world_size": known.get_world_size()}
    left = {name: value for name, value in given.items() if getattr(config, name) is None}
    return config.replace(**left)


def _has_ranks() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _begin_scratch(config: Config) -> Config:
    global _begun  # noqa: PLW0603 - counts for the process
    world = config.world_size or int(os.environ.get("WORLD_SIZE") or 1)
    barrier: Any = lambda: None  # noqa: E731 - of one rank
    if _has_ranks():
        barrier = torch.distributed.barrier
    elif world > 1:
        raise InvalidArgument(
            f"fully_shard() over {world} ranks: call torch.distributed.init_process_group() first, "
            "or name a job that stays (the setting 'job')"
        )
    script = os.path.join(os.getcwd(), os.path.basename(sys.argv[0] or "python"))
    _begun += 1
    name = scratch.name_for(script, "fsdp")
    if _begun > 1:
        name = f"{name}-{_begun}"
    return scratch.begin(config, name, not config.rank, barrier)
