# SPDX-License-Identifier: Apache-2.0
"""zinf in the shape of PyTorch's FSDP2.

    from zinf.fsdp import fully_shard  # was: from torch.distributed.fsdp import fully_shard
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())  # moves the model into zinf

The loop stays. api.py has fully_shard(), module.py the methods of the modules, policy.py the
policies, and adopt.py the way from torch's optimizer to zinf's.
"""

from __future__ import annotations

from .api import fully_shard
from .module import FSDPModule, UnshardHandle, register_fsdp_forward_method
from .policy import CPUOffloadPolicy, MixedPrecisionPolicy, NVMeOffloadPolicy, OffloadPolicy

__all__ = [
    "CPUOffloadPolicy",
    "FSDPModule",
    "MixedPrecisionPolicy",
    "NVMeOffloadPolicy",
    "OffloadPolicy",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
]
