# SPDX-License-Identifier: Apache-2.0
"""The device that computes a model: memory of its parameters and gradients, and the order of work.

CPU  tensors over the memory that the daemon shares with the rank
GPU  CUDA tensors over device addresses, which never change. libzinf copies units there and back

Order on a GPU. libzinf orders its copies against one stream. torch has a current stream for each
thread, and backward runs in a thread of its own. So order() comes before each use of a unit: where
the current stream is another one than before, libzinf lets it wait for the former one. The host
waits for neither.

Tensors. DLPack gives torch a tensor over memory of somebody else, of each type and on each device.
"""

from __future__ import annotations

import ctypes as c
import functools
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.dlpack
from torch import nn

from ..config import Config
from ..errors import InvalidArgument, Unsupported
from ..width import width_of

if TYPE_CHECKING:
    from ..session import Session

__all__ = ["Cuda", "Device", "find", "from_address", "has_cuda", "settle", "tensor_at"]

_CPU, _META = torch.device("cpu"), torch.device("meta")
_PARAM_PART = 2  # of what a GPU has free: parameters take one of these parts, torch has the others


def tensor_at(address: int, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return a plain tensor over CPU memory of zinf."""
    count = 1
    for number in shape:
        count *= number
    memory = (c.c_char * (count * width_of(dtype))).from_address(address)
    return torch.frombuffer(memory, dtype=dtype, count=count).view(tuple(shape))


class Device:
    """The CPU, and what all devices have in common."""

    is_gpu = False

    def __init__(self, place: torch.device = _CPU) -> None:
        self.place = place  # where torch has the parameters
        self.param_bytes = 0  # of the parameters of the model, before open()

    def open(self, session: Session) -> None:
        """Give the rank memory of the device. Before the units are added."""

    def param_address(self, session: Session, index: int) -> int:
        """Return the address of a parameter, by its index in the job."""
        return session.param_address(index)

    def param(
        self, session: Session, index: int, shape: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor:
        """Return a tensor over the memory of a parameter."""
        return tensor_at(session.param_address(index), shape, dtype)

    def grad(
        self, session: Session, index: int, shape: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor:
        """Return a tensor over the memory of this rank's gradient of a parameter."""
        return tensor_at(session.grad_address(index), shape, dtype)

    def order(self, session: Session, *, is_coming: bool = False) -> None:
        """Order what torch's current stream is given next behind the former uses of units.

        is_coming: of a unit that is held from now on.
        """

    def move_others(self, model: nn.Module, managed: Iterable[Any]) -> None:
        """Move what zinf does not hold to the device: buffers, and parameters beside `managed`."""


class _Tensor(c.Structure):
    """DLManagedTensor of DLPack 0.x: dlpack.h of dmlc/dlpack."""

    _fields_ = [
        ("data", c.c_void_p),
        ("device_type", c.c_int32),
        ("device_id", c.c_int32),
        ("ndim", c.c_int32),
        ("code", c.c_uint8),
        ("bits", c.c_uint8),
        ("lanes", c.c_uint16),
        ("shape", c.c_void_p),
        ("strides", c.c_void_p),
        ("byte_offset", c.c_uint64),
        ("manager", c.c_void_p),
        ("deleter", c.c_void_p),
    ]


# DLDataTypeCode: floats, and bfloat16.
_CODES = {torch.float32: 2, torch.float16: 2, torch.bfloat16: 4}


@functools.cache
def _functions() -> tuple[Any, Any, Any]:
    """Return malloc(), free() and PyCapsule_New()."""
    library = c.CDLL(None)
    malloc, free = library.malloc, library.free
    malloc.restype, malloc.argtypes = c.c_void_p, [c.c_size_t]
    free.restype, free.argtypes = None, [c.c_void_p]
    new = c.pythonapi.PyCapsule_New
    new.restype, new.argtypes = c.py_object, [c.c_void_p, c.c_char_p, c.c_void_p]
    return malloc, free, new


def from_address(
    address: int, shape: Sequence[int], dtype: torch.dtype, device_type: int, index: int
) -> torch.Tensor:
    """Return a tensor over memory of any device. device_type: DLDeviceType, of DLPack.

    free() is the deleter: torch may call it in any thread, also where Python has ended. A block
    that torch refuses is left to the process.
    """
    malloc, free, new = _functions()
    head, count = c.sizeof(_Tensor), len(shape)
    block = malloc(head + 2 * count * c.sizeof(c.c_int64))
    if not block:
        raise MemoryError
    sizes = (c.c_int64 * count).from_address(block + head)
    strides = (c.c_int64 * count).from_address(block + head + c.sizeof(sizes))
    stride = 1
    for place in reversed(range(count)):
        sizes[place], strides[place] = shape[place], stride
        stride *= shape[place]
    made = _Tensor.from_address(block)
    made.data, made.device_type, made.device_id = address, device_type, index
    made.ndim, made.byte_offset, made.manager = count, 0, None
    made.code, made.bits, made.lanes = _CODES[dtype], 8 * width_of(dtype), 1
    made.shape, made.strides = c.addressof(sizes), c.addressof(strides)
    made.deleter = c.cast(free, c.c_void_p).value
    from_capsule: Any = torch.utils.dlpack.from_dlpack
    return from_capsule(new(block, b"dltensor", None))  # type: ignore[no-any-return]


# Bytes, of gradients of all units: those with an unused parameter stay until the step.
_ALL = 1 << 62

# Makes no object of Python; None: this torch has none.
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def has_cuda() -> bool:
    """Whether torch has a GPU of NVIDIA. One of AMD is torch.cuda's too."""
    return torch.version.cuda is not None and torch.cuda.is_available()


def _need_cuda() -> None:
    if has_cuda():
        return
    if torch.version.cuda is None:
        reason = "was built without CUDA: install a torch with CUDA"
    else:
        reason = "finds no GPU: see nvidia-smi and CUDA_VISIBLE_DEVICES"
    raise Unsupported(
        f"device is 'cuda', and this torch ({torch.__version__}) {reason}, or compute on the CPU "
        "with device='cpu' (ZINF_DEVICE=cpu)"
    )


class Cuda(Device):
    """A GPU of NVIDIA. index: of the GPUs that this process sees."""

    is_gpu = True
    dlpack_type = 2  # kDLCUDA
    driver: str | None = None  # path of the CUDA driver; None: the system's

    def __init__(self, index: int) -> None:
        super().__init__(torch.device("cuda", index))
        self.index = index

    @classmethod
    def find(cls, index: int | None) -> Cuda:
        """Return a GPU. index: None: of torch's current device, or $LOCAL_RANK, which becomes it.

        Raises Unsupported where torch has no GPU, InvalidArgument where it has no such one.
        """
        _need_cuda()
        count, is_free = torch.cuda.device_count(), index is None
        if index is None:
            index = torch.cuda.current_device()
            local_rank = os.environ.get("LOCAL_RANK", "")
            if index == 0 and count > 1 and local_rank.isdecimal():
                index = int(local_rank)
        if index >= count:
            raise InvalidArgument(
                f"device is 'cuda:{index}', and this process sees {count} GPUs: check LOCAL_RANK "
                "and CUDA_VISIBLE_DEVICES"
            )
        if is_free:
            torch.cuda.set_device(index)
        return cls(index)

    def _uuid(self) -> str | None:
        """Return the UUID; None: libzinf chooses by $LOCAL_RANK, or the only GPU."""
        properties: Any = torch.cuda.get_device_properties(self.index)
        uuid = getattr(properties, "uuid", None)
        # A process sees one MIG instance at most, whose UUID begins with other letters.
        if uuid is not None and " MIG " not in properties.name:
            return f"GPU-{uuid}"
        is_same = os.environ.get("LOCAL_RANK", "") == str(self.index)
        if torch.cuda.device_count() == 1 or is_same:
            return None
        raise Unsupported(
            f"this torch ({torch.__version__}) does not know the UUID of cuda:{self.index}: use a "
            f"newer torch, or show this process one GPU (CUDA_VISIBLE_DEVICES={self.index})"
        )

    def _stream(self) -> int:
        """Return torch's current stream of this thread, as a CUstream."""
        if _current_stream is not None:
            return int(_current_stream(self.index))
        return int(torch.cuda.current_stream(self.place).cuda_stream)

    def _is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def _free_bytes(self) -> int:
        """Return what the driver has free, when torch has given back what it does not use."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.index)[0])

    def _param_budget(self) -> int:
        """Return the default of gpu_param_budget_bytes. 0: libzinf chooses.

        libzinf knows what zinfd has not given out. What torch, its libraries and other processes
        have is known to the driver only.
        """
        part = self._free_bytes() // _PARAM_PART
        return part if self.param_bytes > part else 0

    def open(self, session: Session) -> None:
        """Give the rank memory of the GPU, with the budgets of the settings."""
        config = session.config
        session.gpu_open(
            self._uuid(),
            param_budget_bytes=config.gpu_param_budget_bytes or self._param_budget(),
            grad_budget_bytes=config.gpu_grad_budget_bytes or _ALL * config.find_unused_parameters,
            stream=self._stream(),
            driver=self.driver,
        )

    def param_address(self, session: Session, index: int) -> int:
        """Return the device address of a parameter."""
        return session.gpu_param_address(index)

    def param(
        self, session: Session, index: int, shape: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor:
        """Return a tensor over the device memory of a parameter. What is written there is lost."""
        address = session.gpu_param_address(index)
        return from_address(address, shape, dtype, self.dlpack_type, self.index)

    def grad(
        self, session: Session, index: int, shape: Sequence[int], dtype: torch.dtype
    ) -> torch.Tensor:
        """Return a tensor over the device memory of this rank's gradient of a parameter."""
        address = session.gpu_grad_address(index)
        return from_address(address, shape, dtype, self.dlpack_type, self.index)

    def order(self, session: Session, *, is_coming: bool = False) -> None:
        """Order what the current stream is given next.

        Raises Unsupported in a CUDA graph. One begins on a stream of its own, so that a stream
        that has not changed is asked only where a unit comes. Raises ForkedChild.
        """
        session._use()
        stream = self._stream()
        is_other = stream != session._gpu_stream
        if not (is_other or is_coming):
            return
        if self._is_capturing():
            raise Unsupported(
                "CUDA graphs of a model in zinf: a graph would repeat kernels without the copies "
                "that bring parameters. Run the model outside torch.cuda.graph()"
            )
        if is_other:
            session.gpu_stream(stream)

    def move_others(self, model: nn.Module, managed: Iterable[Any]) -> None:
        """Move what zinf does not hold, also from another GPU."""
        known = {id(item) for item in managed}
        moved: dict[int, Any] = {}  # a buffer of several modules stays one
        for module in model.modules():
            for name, item in module._buffers.items():
                if item is not None and item.device not in (_META, self.place):
                    if id(item) not in moved:
                        moved[id(item)] = item.to(self.place)
                    module._buffers[name] = moved[id(item)]
            for item in module._parameters.values():
                if item is None or id(item) in known or item.device in (_META, self.place):
                    continue
                item.data = item.data.to(self.place)


def find(config: Config, parameters: Iterable[Any] = ()) -> Device:
    """Return the device of a model.

    It is that of the settings, else the GPU on which the parameters are, else the CPU. Raises
    Unsupported, InvalidArgument.
    """
    name = config.device
    if name is None:
        name = next((str(item.device) for item in parameters if item.device.type == "cuda"), "cpu")
    if name == "cpu":
        return Device()
    return Cuda.find(_index_of(name))


def _index_of(name: str) -> int | None:
    """Return N of "cuda:N"; None: "cuda" alone."""
    _, _, index = name.partition(":")
    return int(index) if index else None


def settle(config: Config, place: torch.device, owner: str) -> Config:
    """Return settings for a framework that computes on `place`.

    owner: says so. Raises InvalidArgument where the settings name another device; Unsupported where
    that is a GPU, and torch has none.
    """
    if place.type not in ("cpu", "cuda"):
        return config
    name = config.device
    if name is None:  # Accelerate names the CPU of a rank cpu:0.
        return config.replace(device="cpu" if place.type == "cpu" else str(place))
    if name == "cpu":
        index, is_same = None, place.type == "cpu"
    else:
        index = _index_of(name)
        # A GPU of the tests has its tensors on the CPU.
        is_same = Cuda(index or 0).place.type == place.type
    if is_same and place.type == "cuda" and index is not None:
        is_same = index == (torch.cuda.current_device() if place.index is None else place.index)
    if not is_same:
        if place.type == "cpu":
            _need_cuda()
        raise InvalidArgument(
            f"device is '{name}', but {owner} computes on '{place}': choose the device there, and "
            "leave the setting (ZINF_DEVICE) out"
        )
    return config.replace(device=str(place)) if name == "cuda" == place.type else config
