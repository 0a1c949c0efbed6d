# SPDX-License-Identifier: Apache-2.0
"""zinf as a backend of torch.distributed.

    import zinf.distributed
    torch.distributed.init_process_group("zinf")

The ranks of a node exchange tensors in shared memory, through a zinfd of the node or a private one.
A collective that a rank does not reach, or a rank that dies, ends on every rank with an exception
that names the rank. docs/PYTORCH.md lists the collectives, the dtypes and the limits.
"""

from __future__ import annotations

from .group import BASE, IS_BACKEND, ZinfGroup, create
from .link import Link, configure, current, empty
from .register import register

__all__ = ["BASE", "Link", "ZinfGroup", "configure", "create", "current", "empty"]

register(create, is_group=not IS_BACKEND)
