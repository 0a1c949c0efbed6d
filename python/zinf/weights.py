# SPDX-License-Identifier: Apache-2.0
"""Model files in the safetensors format, written and read as a stream.

A model larger than memory never exists as one state_dict. Writer takes the tensors one by one, in
any order: names, types and shapes are known beforehand, so that the headers are written first.
Reader copies single tensors from the files into memory that exists already. Both use about 1 MiB
beside the tensor in hand.

Files and names are those of Hugging Face: model.safetensors, or model-00001-of-0000N.safetensors
with model.safetensors.index.json. A tied tensor is stored once, under the name that
from_pretrained() expects. Files grow under temporary names and are renamed at the end, the index
last.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

import torch

from .errors import ZinfError
from .width import width_of

__all__ = [
    "CheckpointError",
    "Entry",
    "Reader",
    "Writer",
    "model_entries",
    "parse_size",
    "save_model",
]

DEFAULT_SHARD_BYTES = 5_000_000_000  # the default of transformers 4
_HEADER_LIMIT = 100_000_000  # the limit of the safetensors library
_PIECE_BYTES = 1 << 20

_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
for _code, _attribute in (("F8_E4M3", "float8_e4m3fn"), ("F8_E5M2", "float8_e5m2")):
    if hasattr(torch, _attribute):
        _DTYPES[_code] = getattr(torch, _attribute)
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class CheckpointError(ZinfError):
    """A model file is missing, damaged, or does not fit the model."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: its name, element type and shape."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def bytes(self) -> int:
        """Size of the elements in bytes."""
        return self.count * width_of(self.dtype)


@dataclass(frozen=True)
class _Place:
    """Where a tensor lies: file, offset of its first byte in the file."""

    file: str
    offset: int
    entry: Entry


def parse_size(size: int | str) -> int:
    """Convert "5GB", "200MB", "1GiB" or an integer to bytes. GB is 1000^3, GiB is 1024^3."""
    if isinstance(size, int):
        if size <= 0:
            raise ValueError(f"maximum shard size {size}: must be positive")
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(I?)B\s*", size.upper())
    if match is None:
        raise ValueError(
            f"maximum shard size {size!r}: write a number and a unit, such as '5GB' or '200MiB'"
        )
    base = 1024 if match.group(3) else 1000
    value = int(
        float(match.group(1)) * base ** (" KMGT".index(match.group(2)) if match.group(2) else 0)
    )
    if value <= 0:
        raise ValueError(f"maximum shard size {size!r}: must be positive")
    return value


def _memory(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous CPU tensor, without a copy. Valid as long as the tensor."""
    if tensor.device.type != "cpu":
        raise ValueError(f"tensor on device {tensor.device}: only CPU tensors are supported")
    count = tensor.numel() * tensor.element_size()
    if count == 0:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * count).from_address(tensor.data_ptr())).cast("B")


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while len(data) > 0:
        written = os.pwrite(fd, data[:_PIECE_BYTES], offset)
        data = data[written:]
        offset += written


def _read_all(fd: int, data: memoryview, offset: int, name: str) -> None:
    while len(data) > 0:
        taken = os.preadv(fd, [data[:_PIECE_BYTES]], offset)
        if taken == 0:
            raise CheckpointError(f"{name}: the file ends {len(data)} bytes before its tensors do")
        data = data[taken:]
        offset += taken


def _sync_directory(directory: str) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _split(entries: Iterable[Entry], limit: int) -> list[list[Entry]]:
    """Divide tensors into shards of at most `limit` bytes. A larger tensor has its own shard."""
    shards: list[list[Entry]] = [[]]
    used = 0
    for entry in entries:
        if shards[-1] and used + entry.bytes > limit:
            shards.append([])
            used = 0
        shards[-1].append(entry)
        used += entry.bytes
    return shards


class Writer:
    """Writes the tensors of a model into a directory, one by one and in any order.

    As a context manager it renames the files into place when all tensors were written, and removes
    them when the block raised. Files of an older save with other names are removed, as
    from_pretrained() could prefer them.

    max_shard_size: bytes, or a text such as "5GB". stem: begins the names of the files.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        entries: Iterable[Entry],
        *,
        max_shard_size: int | str = DEFAULT_SHARD_BYTES,
        stem: str = "model",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = os.fspath(directory)
        self.stem = stem
        self._fds: dict[str, int] = {}
        self._temporary: dict[str, str] = {}
        self._places: dict[str, _Place] = {}
        self._missing: dict[str, None] = {}
        listed = list(entries)
        for entry in listed:
            if entry.name in self._missing:
                raise ValueError(f"tensor {entry.name!r} is listed twice")
            if entry.dtype not in _CODES:
                raise ValueError(
                    f"tensor {entry.name!r}: safetensors has no type for {entry.dtype}"
                )
            self._missing[entry.name] = None
        shards = _split(listed, parse_size(max_shard_size))
        self.files = (
            [f"{stem}.safetensors"]
            if len(shards) == 1
            else [
                f"{stem}-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))
            ]
        )
        os.makedirs(self.directory, exist_ok=True)
        try:
            for file, shard in zip(self.files, shards):
                self._begin(file, shard, metadata or {"format": "pt"})
        except BaseException:
            self.abort()
            raise

    def _begin(self, file: str, entries: list[Entry], metadata: Mapping[str, str]) -> None:
        # Large elements first: each tensor then begins at a multiple of its element's size.
        ordered = sorted(entries, key=lambda entry: -width_of(entry.dtype))
        header: dict[str, object] = {"__metadata__": dict(metadata)}
        offset = 0
        for entry in ordered:
            header[entry.name] = {
                "dtype": _CODES[entry.dtype],
                "shape": list(entry.shape),
                "data_offsets": [offset, offset + entry.bytes],
            }
            offset += entry.bytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path = os.path.join(self.directory, f".{file}.{os.getpid()}.tmp")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._fds[file] = fd
        self._temporary[file] = path
        start = 8 + len(text)
        _write_all(fd, memoryview(len(text).to_bytes(8, "little") + text), 0)
        os.ftruncate(fd, start + offset)
        at = start
        for entry in ordered:
            self._places[entry.name] = _Place(file, at, entry)
            at += entry.bytes

    def write(self, name: str, tensor: torch.Tensor) -> None:
        """Write a tensor. Its type and shape are those of its entry."""
        place = self._places.get(name)
        if place is None:
            raise ValueError(f"tensor {name!r} is not in the list of this file")
        if name not in self._missing:
            raise ValueError(f"tensor {name!r} was written already")
        if tuple(tensor.shape) != place.entry.shape or tensor.dtype != place.entry.dtype:
            raise ValueError(
                f"tensor {name!r} is {tensor.dtype} {tuple(tensor.shape)}, "
                f"but its entry says {place.entry.dtype} {place.entry.shape}"
            )
        plain = tensor.detach()
        if plain.device.type == "cuda":
            plain = plain.to("cpu")
        plain = plain.contiguous()
        _write_all(self._fds[place.file], _memory(plain), place.offset)
        del self._missing[name]

    def commit(self) -> None:
        """Make the files durable and rename them into place. Raises if a tensor is missing."""
        if self._missing:
            names = list(self._missing)
            shown = ", ".join(repr(name) for name in names[:3]) + (
                ", ..." if len(names) > 3 else ""
            )
            self.abort()
            raise CheckpointError(f"{len(names)} tensors were not written: {shown}")
        for fd in self._fds.values():
            os.fsync(fd)
        index = f"{self.stem}.safetensors.index.json"
        is_sharded = len(self.files) > 1
        if is_sharded:
            # The directory is no model until the new index is there.
            for stale in (index, f"{self.stem}.safetensors"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, stale))
        for file in self.files:
            os.rename(self._temporary.pop(file), os.path.join(self.directory, file))
        if is_sharded:
            self._write_index(index)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.directory, index))
        self._remove_stale()
        _sync_directory(self.directory)
        self._close()

    def _write_index(self, index: str) -> None:
        weight_map = {name: place.file for name, place in sorted(self._places.items())}
        total = sum(place.entry.bytes for place in self._places.values())
        write_json(
            os.path.join(self.directory, index),
            {"metadata": {"total_size": total}, "weight_map": weight_map},
        )

    def _remove_stale(self) -> None:
        pattern = re.compile(re.escape(self.stem) + r"-\d{5}-of-\d{5}\.safetensors")
        for file in os.listdir(self.directory):
            if pattern.fullmatch(file) and file not in self.files:
                os.unlink(os.path.join(self.directory, file))

    def _close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def abort(self) -> None:
        """Remove what was written. Files of an older save stay."""
        self._close()
        for path in self._temporary.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._temporary.clear()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()


def write_json(path: str, value: object) -> None:
    """Write a JSON file that appears whole or not at all."""
    directory = os.path.dirname(path) or "."
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=2, sort_keys=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)


class Reader:
    """Reads single tensors from the model files of a directory, or from one file.

    The constructor checks the headers: lengths, types, and that each tensor lies inside its file.
    Raises CheckpointError with the name of the file.
    """

    def __init__(self, path: str | os.PathLike[str], *, stem: str = "model") -> None:
        self.path = os.fspath(path)
        self._fds: dict[str, int] = {}
        self._places: dict[str, _Place] = {}
        try:
            for file in self._list(stem):
                self._open(file)
            if self._expected is not None:
                for name, file in self._expected.items():
                    place = self._places.get(name)
                    if place is None or place.file != os.path.join(self.path, file):
                        raise CheckpointError(
                            f"{self.path}: the index places {name!r} in {file}, which lacks it"
                        )
        except BaseException:
            self.close()
            raise

    _expected: dict[str, str] | None = None

    def _list(self, stem: str) -> list[str]:
        if os.path.isfile(self.path):
            return [self.path]
        if not os.path.isdir(self.path):
            raise CheckpointError(f"{self.path}: no such file or directory")
        single = os.path.join(self.path, f"{stem}.safetensors")
        if os.path.isfile(single):
            return [single]
        index = os.path.join(self.path, f"{stem}.safetensors.index.json")
        if not os.path.isfile(index):
            raise CheckpointError(
                f"{self.path}: has neither {stem}.safetensors nor {stem}.safetensors.index.json"
            )
        try:
            with open(index, encoding="utf-8") as file:
                weight_map = json.load(file)["weight_map"]
            self._expected = {str(name): str(file) for name, file in weight_map.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{index}: not an index of safetensors files ({error})"
            ) from error
        files = sorted(set(self._expected.values()))
        for file_name in files:
            if os.path.basename(file_name) != file_name:
                raise CheckpointError(f"{index}: the file name {file_name!r} has a directory")
        return [os.path.join(self.path, file) for file in files]

    def _open(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CheckpointError(f"{path}: {error.strerror}") from error
        self._fds[path] = fd
        size = os.fstat(fd).st_size
        if size < 8:
            raise CheckpointError(f"{path}: {size} bytes are no safetensors file")
        length = int.from_bytes(os.pread(fd, 8, 0), "little")
        if length > min(size - 8, _HEADER_LIMIT):
            raise CheckpointError(
                f"{path}: the header claims {length} bytes of a file of {size} bytes"
            )
        try:
            header = json.loads(os.pread(fd, length, 8))
            items = [(name, value) for name, value in header.items() if name != "__metadata__"]
        except (ValueError, AttributeError) as error:
            raise CheckpointError(f"{path}: the header is not JSON ({error})") from error
        for name, value in items:
            self._take(path, name, value, 8 + length, size)

    def _take(self, path: str, name: str, value: object, start: int, size: int) -> None:
        try:
            assert isinstance(value, dict)
            dtype = _DTYPES[value["dtype"]]
            shape = tuple(int(extent) for extent in value["shape"])
            begin, end = (int(offset) for offset in value["data_offsets"])
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path}: tensor {name!r} has an entry that cannot be read ({error!r})"
            ) from error
        entry = Entry(name, dtype, shape)
        if (
            min(shape, default=0) < 0
            or begin < 0
            or end - begin != entry.bytes
            or start + end > size
        ):
            raise CheckpointError(
                f"{path}: tensor {name!r} of {entry.bytes} bytes is placed at {begin} to {end} "
                f"of {size - start} bytes"
            )
        if name in self._places:
            raise CheckpointError(f"{path}: tensor {name!r} is also in {self._places[name].file}")
        self._places[name] = _Place(path, start + begin, entry)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def entry(self, name: str) -> Entry:
        """Return type and shape of a tensor. KeyError: the files do not have it."""
        return self._places[name].entry

    def read_into(self, name: str, target: torch.Tensor) -> None:
        """Copy a tensor into `target`, which has its shape. Another type is converted in pieces."""
        place = self._places.get(name)
        if place is None:
            raise CheckpointError(f"{self.path}: has no tensor {name!r}")
        entry = place.entry
        if tuple(target.shape) != entry.shape:
            raise CheckpointError(
                f"{place.file}: tensor {name!r} has shape {entry.shape}, "
                f"but the model wants {tuple(target.shape)}"
            )
        fd = self._fds[place.file]
        plain = target.detach()
        if not plain.is_contiguous() or plain.device.type == "cuda":
            copy = torch.empty(entry.shape, dtype=entry.dtype)
            _read_all(fd, _memory(copy), place.offset, place.file)
            plain.copy_(copy)
        elif plain.dtype == entry.dtype:
            _read_all(fd, _memory(plain), place.offset, place.file)
        else:
            flat = plain.view(-1)
            width = width_of(entry.dtype)
            step = _PIECE_BYTES // width
            piece = torch.empty(min(step, max(1, entry.count)), dtype=entry.dtype)
            for at in range(0, entry.count, step):
                part = piece[: min(step, entry.count - at)]
                _read_all(fd, _memory(part), place.offset + at * width, place.file)
                flat[at : at + part.numel()].copy_(part)

    def close(self) -> None:
        """Close the files."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


# ---- the tensors of a model ----


def named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters and persistent buffers under all their names, in state_dict()'s order.

    No value is read.
    """
    for prefix, module in model.named_modules(remove_duplicate=False):
        start = prefix + "." if prefix else ""
        for name, parameter in module._parameters.items():
            if parameter is not None:
                yield start + name, parameter
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield start + name, buffer


def _tied_patterns(model: torch.nn.Module) -> list[str]:
    """Return patterns of names that transformers does not save: the model ties them again."""
    patterns = []
    for prefix, module in model.named_modules(remove_duplicate=False):
        keys = getattr(module, "_tied_weights_keys", None)
        if isinstance(keys, (list, tuple, set, dict)):
            patterns += [f"{prefix}.{key}" if prefix else str(key) for key in keys]
    return patterns


def tied_names(model: torch.nn.Module) -> dict[str, str]:
    """Return for each name of a parameter or buffer the name under which it is stored."""
    groups: dict[int, list[str]] = {}
    for name, tensor in named_tensors(model):
        groups.setdefault(id(tensor), []).append(name)
    patterns = _tied_patterns(model) if any(len(names) > 1 for names in groups.values()) else []
    stored = {}
    for names in groups.values():
        kept = names[0]
        if len(names) > 1:
            main = [
                name for name in names if not any(re.search(pattern, name) for pattern in patterns)
            ]
            kept = main[0] if main else sorted(names)[-1]
        for name in names:
            stored[name] = kept
    return stored


def model_entries(model: torch.nn.Module) -> list[Entry]:
    """Return the entries of a file of this model: each tensor once, without ignored names."""
    stored = tied_names(model)
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    return [
        Entry(name, tensor.dtype, tuple(tensor.shape))
        for name, tensor in named_tensors(model)
        if stored[name] == name and name not in ignored
    ]


def save_model(
    model: torch.nn.Module,
    directory: str | os.PathLike[str],
    tensors: Iterable[tuple[str, torch.Tensor]] | None = None,
    *,
    max_shard_size: int | str = DEFAULT_SHARD_BYTES,
    stem: str = "model",
) -> list[str]:
    """Write the tensors of a model into a directory. Return the names of the files.

    tensors: yields all parameters, in any order and under any of their names. A tensor is used
        only until the next one is asked for. None: the parameters of `model` as they are. Buffers
        always come from the model.
    """
    entries = model_entries(model)
    stored = tied_names(model)
    wanted = {entry.name for entry in entries}
    done: set[str] = set()
    with Writer(directory, entries, max_shard_size=max_shard_size, stem=stem) as writer:

        def write(name: str, tensor: torch.Tensor) -> None:
            kept = stored.get(name, name)
            if kept in wanted and kept not in done:
                writer.write(kept, tensor)
                done.add(kept)

        if tensors is not None:
            for name, tensor in tensors:
                write(name, tensor)
        for name, tensor in named_tensors(model):
            if tensors is None or not isinstance(tensor, torch.nn.Parameter):
                write(name, tensor)
    return list(writer.files)


def fill(model: torch.nn.Module, reader: Reader) -> None:
    """Read all tensors of a model from files. Of a model that zinf holds: unit by unit, all ranks.

    CheckpointError: the files do not have a tensor of the model, and the model is unchanged.
    """
    from .module.engine import engine_of  # noqa: PLC0415 - only a model in zinf needs it

    stored = tied_names(model)
    wanted = {entry.name for entry in model_entries(model)}
    missing = sorted(name for name in wanted if name not in reader)
    if missing:
        shown = ", ".join(repr(name) for name in missing[:3])
        raise CheckpointError(f"{reader.path}: {len(missing)} tensors are missing: {shown}")
    engine = engine_of(model)
    for name, tensor in named_tensors(model):
        is_zinfs = engine is not None and isinstance(tensor, torch.nn.Parameter)
        if stored[name] == name and name in wanted and not is_zinfs:
            reader.read_into(name, tensor)
    if engine is None:
        return
    engine.begin_writing()
    for unit in engine.units:
        if engine.session.rank == 0:
            engine.open_unit(unit)
        try:
            for slot in unit.slots if engine.session.rank == 0 else ():
                reader.read_into(stored[slot.name], engine.host_values(slot))
        finally:
            engine.close_unit(unit)
    engine.commit()
