# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's configuration and its engine, on zinf.

`read()` reads DeepSpeed's JSON and needs no torch. zinf.initialize() and the engine lie in other
modules of this package, which zinf imports when they are first used.
"""

from __future__ import annotations

from .settings import DeepSpeed, Note, read, world_size

__all__ = ["DeepSpeed", "Note", "read", "world_size"]
