# SPDX-License-Identifier: Apache-2.0
"""deepspeed.get_accelerator() for scripts: the device on which zinf.initialize() computes models.

It is the GPU where torch has one of NVIDIA, else the CPU; with ZINF_DEVICE=cpu the CPU. The
setting `device` of one call does not change it.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from .module.device import has_cuda

__all__ = ["CpuAccelerator", "CudaAccelerator", "get_accelerator"]


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


class CudaAccelerator(CpuAccelerator):
    """The GPUs of this process. Names that are not here are those of torch.cuda."""

    _name = "cuda"

    def is_available(self) -> bool:
        """Whether there is a GPU."""
        return has_cuda()

    def device_name(self, device_index: int | None = None) -> str:
        """Return the name of a device; of all of them without an index."""
        return self._name if device_index is None else f"{self._name}:{device_index}"

    def current_device_name(self) -> str:
        """Return the name of the present device."""
        return f"{self._name}:{torch.cuda.current_device()}"

    def current_device(self) -> Any:
        """Return the number of the present device."""
        return torch.cuda.current_device()

    def device(self, device_index: int | None = None) -> Any:
        """Return a context manager that makes a device the present one."""
        return torch.cuda.device(device_index)

    def device_count(self) -> int:
        """Return the number of GPUs that this process sees."""
        return torch.cuda.device_count()

    def set_device(self, device_index: Any) -> None:
        """Make a device the present one."""
        torch.cuda.set_device(device_index)

    def synchronize(self, device_index: Any = None) -> None:
        """Wait until a device has done its work."""
        torch.cuda.synchronize(device_index)

    def empty_cache(self) -> None:
        """Give memory that torch does not use back."""
        torch.cuda.empty_cache()

    def is_bf16_supported(self) -> bool:
        """Whether bfloat16 is supported."""
        return bool(torch.cuda.is_bf16_supported())

    def is_synchronized_device(self) -> bool:
        """Whether operations have ended when they return: no."""
        return False

    def manual_seed(self, seed: int) -> None:
        """Seed the generator of the present device."""
        torch.cuda.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices."""
        torch.cuda.manual_seed_all(seed)

    def initial_seed(self) -> int:
        """Return the seed of the present device."""
        return torch.cuda.initial_seed()

    def get_rng_state(self, device_index: Any = None) -> torch.Tensor:
        """Return the state of a device's generator."""
        return (
            torch.cuda.get_rng_state()
            if device_index is None
            else torch.cuda.get_rng_state(device_index)
        )

    def set_rng_state(self, new_state: torch.Tensor, device_index: Any = None) -> None:
        """Set the state of a device's generator."""
        if device_index is None:
            torch.cuda.set_rng_state(new_state)
        else:
            torch.cuda.set_rng_state(new_state, device_index)

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        """Return a copy of a tensor in pinned memory of the CPU."""
        return tensor.pin_memory()

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(torch.cuda, name)
        except AttributeError:
            raise AttributeError(f"get_accelerator() has no '{name}', nor has torch.cuda") from None


_accelerator: CpuAccelerator | None = None


def get_accelerator() -> CpuAccelerator:
    """Return the accelerator: GPUs where torch has one, unless ZINF_DEVICE=cpu; else the CPU."""
    global _accelerator  # noqa: PLW0603 - one for the process
    if _accelerator is None:
        is_on_cpu = os.environ.get("ZINF_DEVICE", "").strip().lower() == "cpu"
        _accelerator = CudaAccelerator() if has_cuda() and not is_on_cpu else CpuAccelerator()
    return _accelerator
