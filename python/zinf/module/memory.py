# SPDX-License-Identifier: Apache-2.0
"""Memory of a parameter, as every tensor that shares it sees it: open or closed.

torch makes tensors that no guard sees: torch.FloatTensor(p), extensions, views that were made
before the parameter moved. All of them share one storage object of torch. The storage is closed
while the values of the parameter are away, so that a read through any of them cannot end the
process. Two means do this; a probe tests at first use which one this torch has.

message  torch raises RuntimeError with a given text, for every use of the address (torch 2.15)
pointer  the storage points at memory full of NaN: a read gives NaN (torch 1.13). The probe finds
         the word of the storage object that holds the address

Without a probe that succeeds nothing is closed, and only the guards of parameter.py protect. Not
seen by either: addresses that left torch, such as an array of numpy over an unguarded tensor.

On a GPU a read of a parameter that is away would return values of other units. There is no device
memory of NaN, so only the first means acts.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

import torch

__all__ = ["Memory", "means"]

_HEAD_WORDS = 8  # of a storage object: the address is among them
_CHUNK_BYTES = 64 << 10  # of NaN, which a range of addresses repeats
_CHUNKS_MAX = 1024  # mappings of a range
_PROT_NONE, _PROT_READ = 0, 1
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 1, 2, 0x10, 0x20, 0x4000

_close_with: Any = getattr(torch._C, "_set_storage_data_ptr_access_error_msg", None)
_open_again: Any = getattr(torch._C, "_clear_storage_data_ptr_access_error_msg", None)


class Memory:
    """The storage of a parameter's tensor. It begins open.

    is_on_host: it is CPU memory.
    """

    __slots__ = ("_address", "_key", "_nowhere", "_storage", "_text", "_word")

    def __init__(self, tensor: torch.Tensor, name: str, *, is_on_host: bool = True) -> None:
        self._storage = _storage_of(tensor)  # keeps the object behind _key
        self._key: int = self._storage._cdata
        self._text = (
            f"parameter '{name}' is away, and zinf does not guard this tensor, which shares its "
            "memory. Use the parameter itself, or a clone() of it"
        )
        self._word: Any = None
        if is_on_host and means() == "pointer":
            self._word = _words(self._key)[_word_index()]
            self._address = self._word.value
            self._nowhere = _nan_address(self._storage.nbytes())

    def open(self) -> None:
        """Let reads through."""
        if self._word is not None:
            self._word.value = self._address
        elif _open_again is not None and means() == "message":
            _open_again(self._key)

    def close(self) -> None:
        """Let no read reach the memory until open()."""
        if self._word is not None:
            self._word.value = self._nowhere
        elif _close_with is not None and means() == "message":
            _close_with(self._key, self._text)

    def end(self) -> None:
        """Close for ever: the parameter has other memory now, or its session has ended."""
        self._text = (
            "this tensor shared the memory of a parameter that has moved since: load_state(), a "
            "second train() and close() do that. Make the view anew from the parameter"
        )
        self.close()


def _storage_of(tensor: torch.Tensor) -> Any:
    function: Any = getattr(tensor, "untyped_storage", tensor.storage)
    return function()


# ---- which means this torch has ----


@functools.cache
def means() -> str:
    """Return how this torch closes a storage: "message", "pointer", or "" if it cannot."""
    if _close_with is not None and _open_again is not None and _message_works():
        return "message"
    return "pointer" if _word_index() >= 0 else ""


def _message_works() -> bool:
    tensor = torch.ones(2, device="cpu")
    key = _storage_of(tensor)._cdata
    _close_with(key, "closed by zinf")
    try:
        tensor.sum()
    except RuntimeError as error:
        is_closed = "closed by zinf" in str(error)
    else:
        is_closed = False
    _open_again(key)
    return is_closed and tensor.sum().item() == 2


def _words(key: int) -> Any:
    return [ctypes.c_uint64.from_address(key + 8 * number) for number in range(_HEAD_WORDS)]


@functools.cache
def _word_index() -> int:
    """Return which word of a storage object holds the address; -1: none is certain."""
    here, there = (ctypes.c_float * 2)(1, 1), (ctypes.c_float * 2)(2, 2)
    tensor = torch.frombuffer(here, dtype=torch.float32, count=2)
    storage = _storage_of(tensor)
    words = _words(storage._cdata)
    found = [index for index, word in enumerate(words) if word.value == ctypes.addressof(here)]
    if len(found) != 1:
        return -1
    words[found[0]].value = ctypes.addressof(there)
    moved = tensor.sum().item(), torch.Tensor(tensor).sum().item()
    words[found[0]].value = ctypes.addressof(here)
    return found[0] if moved == (4, 4) and tensor.sum().item() == 2 else -1


# ---- memory full of NaN ----

_nans: list[tuple[int, int]] = []  # address and bytes of each range, for the life of the process


def _nan_address(byte_count: int) -> int:
    """Return the address of at least byte_count bytes of NaN, read-only.

    All bits of a NaN are one, in each type of float. One chunk of memory is mapped many times.
    """
    for address, bytes_there in _nans:
        if bytes_there >= byte_count:
            return address
    # Powers of two: few ranges for all sizes of parameters.
    total = max(_CHUNK_BYTES, 1 << (byte_count - 1).bit_length())
    chunk_bytes = max(_CHUNK_BYTES, total // _CHUNKS_MAX)
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
    base = _mapped(library.mmap(None, total, _PROT_NONE, flags, -1, 0))
    file = os.memfd_create("zinf-nan", os.MFD_CLOEXEC)
    try:
        for _ in range(chunk_bytes // _CHUNK_BYTES):
            os.write(file, b"\xff" * _CHUNK_BYTES)
        for offset in range(0, total, chunk_bytes):
            flags = _MAP_SHARED | _MAP_FIXED
            _mapped(library.mmap(base + offset, chunk_bytes, _PROT_READ, flags, file, 0))
    finally:
        os.close(file)
    _nans.append((base, total))
    return base


def _mapped(address: int | None) -> int:
    if address is None or address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"mmap() of NaN: {os.strerror(number)}")
    return address
