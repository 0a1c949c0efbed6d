# SPDX-License-Identifier: Apache-2.0
"""deepspeed.comm for scripts: torch.distributed with the backend gloo.

init_distributed() makes the process group from the launcher's variables. All other names are those
of torch.distributed. The gradients of a model in zinf do not use it.
"""

from __future__ import annotations

import datetime
import os
from typing import Any

import torch.distributed

from .errors import InvalidArgument

__all__ = ["get_local_rank", "get_rank", "get_world_size", "init_distributed", "is_available"]

DEFAULT_PORT = 29500
_OMPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
}
_BACKENDS = ("gloo", "nccl", "mpi", "ccl")


def init_distributed(
    dist_backend: str | None = None,
    auto_mpi_discovery: bool = True,
    distributed_port: int = DEFAULT_PORT,
    verbose: bool = True,
    timeout: datetime.timedelta = datetime.timedelta(minutes=30),
    init_method: str | None = None,
    dist_init_required: bool | None = None,
    config: Any = None,
    rank: int = -1,
    world_size: int = -1,
) -> None:
    """Make torch's process group of all ranks, unless there is one. Collective.

    dist_backend: "nccl" and others become gloo, as zinf reduces gradients itself; gloo has
        broadcast and all_reduce of CUDA tensors. dist_init_required: False leaves it to the
        script. A script without a launcher gets a group of one rank.
    """
    if dist_init_required is False or torch.distributed.is_initialized():
        return
    if dist_backend is not None and dist_backend not in _BACKENDS:
        raise InvalidArgument(f"dist_backend is '{dist_backend}': one of {', '.join(_BACKENDS)}")
    if auto_mpi_discovery and "RANK" not in os.environ and _OMPI["RANK"] in os.environ:
        for name, source in _OMPI.items():
            os.environ.setdefault(name, os.environ[source])
    if rank < 0:
        rank = int(os.environ.get("RANK", "0"))
    if world_size < 0:
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if init_method is not None:
        torch.distributed.init_process_group(
            "gloo", init_method=init_method, timeout=timeout, rank=rank, world_size=world_size
        )
        return
    if world_size == 1:  # no port is needed
        store: Any = vars(torch.distributed)["HashStore"]
        torch.distributed.init_process_group(
            "gloo", store=store(), timeout=timeout, rank=0, world_size=1
        )
        return
    if "MASTER_ADDR" not in os.environ:
        raise InvalidArgument(
            f"WORLD_SIZE is {world_size}, and MASTER_ADDR is not set: start the script with "
            "torchrun, or set MASTER_ADDR and MASTER_PORT"
        )
    os.environ.setdefault("MASTER_PORT", str(distributed_port))
    torch.distributed.init_process_group("gloo", timeout=timeout, rank=rank, world_size=world_size)


def get_rank(group: Any = None) -> int:
    """Return the rank of this process; 0 without a process group and launcher."""
    if torch.distributed.is_initialized():
        return torch.distributed.get_rank(group)
    return int(os.environ.get("RANK", "0"))


def get_world_size(group: Any = None) -> int:
    """Return the number of ranks; 1 without a process group and launcher."""
    if torch.distributed.is_initialized():
        return torch.distributed.get_world_size(group)
    return int(os.environ.get("WORLD_SIZE", "1"))


def get_local_rank() -> int:
    """Return the number of this rank on its node."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_available() -> bool:
    """Whether torch has its package of collectives."""
    return torch.distributed.is_available()


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(torch.distributed, name)
    except AttributeError:
        raise AttributeError(
            f"zinf.comm has no '{name}': it has the names of torch.distributed"
        ) from None
