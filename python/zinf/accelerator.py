# SPDX-License-Identifier: Apache-2.0
"""deepspeed.get_accelerator() for scripts: the CPU, on which zinf's models are computed."""

from __future__ import annotations

import os
from typing import Any

import torch

__all__ = ["CpuAccelerator", "get_accelerator"]


class CpuAccelerator:
    """The names of DeepSpeed's accelerators that training scripts use."""

    _name = "cpu"
    _communication_backend_name = "gloo"

    def is_available(self) -> bool:
        """Whether there is a CPU."""
        return True

    def device_name(self, device_index: int | None = None) -> str:
        """Return the name of the device, without an index."""
        return self._name

    def current_device_name(self) -> str:
        """Return the name of the present device."""
        return self._name

    def current_device(self) -> str:
        """Return the present device."""
        return self._name

    def device(self, device_index: int | None = None) -> torch.device:
        """Return the device."""
        return torch.device(self._name)

    def device_count(self) -> int:
        """Return the number of ranks of this node."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))

    def set_device(self, device_index: Any) -> None:
        """Do nothing: ranks share the CPU."""

    def synchronize(self, device_index: Any = None) -> None:
        """Do nothing: operations on the CPU have ended when they return."""

    def empty_cache(self) -> None:
        """Do nothing."""

    def communication_backend_name(self) -> str:
        """Return the backend for torch.distributed."""
        return self._communication_backend_name

    def is_bf16_supported(self) -> bool:
        """Whether bfloat16 is supported."""
        return True

    def is_fp16_supported(self) -> bool:
        """Whether float16 is supported."""
        return True

    def is_synchronized_device(self) -> bool:
        """Whether operations have ended when they return."""
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the types of parameters."""
        return [torch.float32, torch.bfloat16, torch.float16]

    def manual_seed(self, seed: int) -> None:
        """Seed torch's generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch's generator."""
        torch.manual_seed(seed)

    def initial_seed(self) -> int:
        """Return the seed of torch's generator."""
        return torch.initial_seed()

    def get_rng_state(self, device_index: Any = None) -> torch.Tensor:
        """Return the state of torch's generator."""
        return torch.get_rng_state()

    def set_rng_state(self, new_state: torch.Tensor, device_index: Any = None) -> None:
        """Set the state of torch's generator."""
        torch.set_rng_state(new_state)

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the device."""
        return tensor.device.type == self._name

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        """Return the tensor: nothing is copied to a device."""
        return tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is pinned."""
        return tensor.is_pinned()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"get_accelerator().{name}: zinf computes on the CPU, and its accelerator has no such "
            "name. zinf.stats() shows memory and times"
        )


_accelerator = CpuAccelerator()


def get_accelerator() -> CpuAccelerator:
    """Return the accelerator: the CPU."""
    return _accelerator
