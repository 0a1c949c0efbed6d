# SPDX-License-Identifier: Apache-2.0
"""fully_shard()."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..config import Source
from ..errors import InvalidArgument, Unsupported
from ..module.engine import engine_of
from . import adopt
from .module import FSDPModule, check_reshard
from .policy import offload_settings, take_precision
from .shard import Shard, shard_of

__all__ = ["fully_shard"]

_classes: dict[type, type] = {}


def fully_shard(
    module: Any,
    *,
    mesh: Any = None,
    reshard_after_forward: bool | None = None,
    mp_policy: Any = None,
    offload_policy: Any = None,
    shard_placement_fn: Any = None,
    ignored_params: Any = None,
    dp_mesh_dims: Any = None,
    config: Source = None,
    **settings: Any,
) -> Any:
    """Make a module a unit of zinf, in the shape of FSDP2. Call this of blocks, then of the root.

    The optimizer is made from model.parameters() afterwards, and with it the model moves into zinf.
    The module keeps its object and gets the methods of FSDPModule.

    module: a module, or a list of them, of which each becomes a unit.
    mesh: a DeviceMesh over all ranks, on "cpu" or "cuda"; of two dimensions (replicas, shards):
        shard_size. None: the GPU where torch has one, as of FSDP2, or the setting `device`.
    reshard_after_forward: whether the parameters go between forward and backward; None: unless the
        module is the root.
    mp_policy, offload_policy: of zinf.fsdp or torch; the same for all modules.
    config, settings: of zinf.Config, from any of the calls. The strategy is zero3. Without the
        setting `job` the job ends with the script.
    Return: `module`.
    """
    for name, value in (
        ("shard_placement_fn", shard_placement_fn),
        ("ignored_params", ignored_params),
        ("dp_mesh_dims", dp_mesh_dims),
    ):
        if value:
            raise Unsupported(f"{name} of fully_shard(): zinf does not support it, leave it out")
    check_reshard(reshard_after_forward)
    precision = take_precision(mp_policy)
    settings = {
        **{name: value for name, value in settings.items() if value is not None},
        **offload_settings(offload_policy),
        **_mesh_settings(mesh, settings.get("device")),
    }
    modules = module if isinstance(module, (list, tuple)) else [module]
    for item in modules:
        _check(item)
    for item in modules:
        Shard(item, precision, reshard_after_forward, config, settings)
        kind = type(item)
        made = _classes.get(kind)
        if made is None:
            made = _classes[kind] = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})
        item.__class__ = made
    adopt.install()
    return module


def _check(module: Any) -> None:
    if not isinstance(module, nn.Module):
        raise InvalidArgument(f"fully_shard() needs a torch.nn.Module, not {type(module).__name__}")
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        raise ValueError(
            f"fully_shard does not support containers that do not implement forward: {module}"
        )
    if shard_of(module) is not None:
        raise InvalidArgument(f"fully_shard() was called twice of a {type(module).__name__}")
    if engine_of(module) is not None:
        raise InvalidArgument(
            "the model is in zinf already: call fully_shard() before the optimizer is made, and "
            "not together with zinf.prepare()"
        )


def _mesh_settings(mesh: Any, device: Any) -> dict[str, Any]:
    """Return the settings that a mesh asks for. device: the setting, or None."""
    if mesh is None:
        return {}
    if mesh.device_type not in ("cpu", "cuda"):
        raise InvalidArgument(
            f"the mesh is of {mesh.device_type}: zinf computes on 'cpu' or 'cuda', make such a mesh"
        )
    world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    count = int(mesh.size())
    if mesh.ndim > 2 or count != world:
        raise InvalidArgument(
            f"the mesh has {mesh.ndim} dimensions and {count} ranks, the job {world} ranks: zinf "
            "needs a mesh of all ranks with one dimension, or with (replicas, shards)"
        )
    found: dict[str, Any] = {"device": mesh.device_type if device is None else device}
    if not str(found["device"]).startswith(mesh.device_type):
        raise InvalidArgument(
            f"the mesh is of {mesh.device_type}, and the setting device is {device!r}: name one"
        )
    if mesh.ndim == 2:
        found["shard_size"] = int(mesh.size(1))
    return found
