# SPDX-License-Identifier: Apache-2.0
"""The daemon's loss scale in the shape of torch's GradScaler.

    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

zinf divides the gradients by the scale, skips a step whose gradients are not finite, and moves the
scale by torch's rule (`loss_scale="torch"`), on all ranks alike. Commits and snapshots keep it.
"""

from __future__ import annotations

import math
from typing import Any, Callable

import torch

from .errors import InvalidArgument
from .module.engine import Engine

__all__ = ["LossScaler"]


class LossScaler:
    """torch.amp.GradScaler over the loss scale of an engine.

    engine: returns the engine, from the first call on.
    """

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    def is_enabled(self) -> bool:
        """Whether losses are scaled: always."""
        return True

    def get_scale(self) -> float:
        """Return the factor of the next loss. Waits for the commit of the last step."""
        engine = self._engine()
        engine.last_stats()
        return engine.session.loss_scale()

    def scale(self, outputs: Any) -> Any:
        """Return a tensor, or those of a list or tuple, multiplied by the scale."""
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(item) for item in outputs)
        return outputs * self.get_scale()

    def unscale_(self, optimizer: Any) -> None:
        """Do nothing: norms of zinf are those of unscaled gradients."""

    def step(self, optimizer: Any, closure: Any = None) -> Any:
        """Make a step, or skip it where the gradients are not finite. Collective.

        A skipped step is a step of the daemon that changes the scale only: optimizer.step() is not
        called then. Raises InvalidArgument with a closure, as torch does.
        """
        if closure is not None:
            raise InvalidArgument("a closure cannot be used with a loss scale")
        engine = self._engine()
        if engine.has_begun and not math.isfinite(engine.grad_norm()):
            engine.step(optimizer.param_groups)
            return None
        return optimizer.step()

    def update(self, new_scale: Any = None) -> None:
        """Do nothing: the step has moved the scale. Raises InvalidArgument for a new scale."""
        if new_scale is not None:
            raise InvalidArgument("update(new_scale): the daemon keeps the loss scale")

    def state_dict(self) -> dict[str, Any]:
        """Return the scale. A snapshot keeps it with all that belongs to it."""
        return {"scale": torch.tensor(self.get_scale(), dtype=torch.float64)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Do nothing: the snapshot that is loaded has the scale."""
