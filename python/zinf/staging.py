# SPDX-License-Identifier: Apache-2.0
"""State of a step that stays as it is while training goes on, for dcp.async_save().

torch copies a state dict to memory, and saves the copy in a thread. State in zinf may be larger
than memory. So the daemon keeps a snapshot, `zctl export` writes it to files beside the checkpoint,
and the entries of the staged state dict read these files. Training goes on meanwhile.

    Staging()   all ranks, in the script's thread: the snapshot. State on NVMe is not copied
    export()    the first rank, in torch's thread, before any rank reads
    read()      each rank, in torch's thread: one tensor
    finish()    the first rank: removes the files, and the snapshot unless it is kept
"""

from __future__ import annotations

import os
import shutil
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from . import admin, reference
from .errors import Unsupported
from .module import parameter
from .module.parameter import NoDispatch
from .module.units import short_name
from .session import StateKind
from .weights import CheckpointError
from .weights import Reader as FileReader

if TYPE_CHECKING:
    from .module.engine import Engine
    from .module.units import Slot

__all__ = ["LazyTensor", "StagedTensor", "Staging"]

_STORAGE = frozenset(("data_ptr", "storage", "_storage", "untyped_storage", "_typed_storage"))

# The file of each kind of state: docs/CHECKPOINT.md. Parameters lie in "param".
_FILES = {
    StateKind.MASTER: "master",
    StateKind.EXP_AVG: "exp_avg",
    StateKind.MOMENTUM: "exp_avg",
    StateKind.SUM: "exp_avg",
    StateKind.EXP_AVG_SQ: "exp_avg_sq",
}


class LazyTensor(torch.Tensor):
    """An entry of a state dict without memory, whose values are read when they are used."""

    @classmethod
    def of_shape(cls, shape: Sequence[int], dtype: torch.dtype) -> Any:
        """Return an entry without a source."""
        return torch.zeros((), dtype=dtype).expand(tuple(shape)).as_subclass(cls)

    def read(self) -> torch.Tensor:
        """Return a copy of the values. Not collective."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer questions about shape and type; run any other operation on a copy."""
        name = parameter._name_of(func)
        given = kwargs or {}
        with NoDispatch():
            if name in parameter._META or name in parameter._META_GETS or name == "is_pinned":
                return func(*args, **given)
        if name.endswith("_") and not name.endswith("__"):
            raise Unsupported(
                f"{name}() would write to optimizer state that lies in zinf: load it by "
                "zinf.checkpoint.Reader or by optimizer.load_state_dict()"
            )
        if name in _STORAGE:
            raise Unsupported(
                f"{name}() of state that lies in zinf: it has no memory in this process. Use its "
                "clone(). To save it, give dcp.save() or dcp.async_save() "
                "storage_writer=zinf.checkpoint.Writer(DIR)"
            )
        copies = [item.read() if isinstance(item, LazyTensor) else item for item in args]
        named = {n: v.read() if isinstance(v, LazyTensor) else v for n, v in given.items()}
        return func(*copies, **named)


class StagedTensor(LazyTensor):
    """A parameter, or one kind of its optimizer state, of a step that was staged."""

    _zinf_staging: Staging
    _zinf_file: str
    _zinf_name: str
    _zinf_unit: int

    @classmethod
    def of(cls, staging: Staging, slot: Slot, kind: StateKind | None) -> StagedTensor:
        """Return the entry of a parameter. kind: None: its values."""
        dtype = slot.unit.engine.dtype if kind is None else torch.float32
        made: StagedTensor = cls.of_shape(slot.shape, dtype)
        made._zinf_staging, made._zinf_unit = staging, slot.unit.index
        made._zinf_file = "param" if kind is None else _FILES[kind]
        made._zinf_name = short_name(slot.name)
        staging.has_entries = True
        return made

    def read(self) -> torch.Tensor:
        """Return the values, after export()."""
        values = torch.empty(tuple(self.shape), dtype=self.dtype)
        self._zinf_staging.read(self._zinf_file, self._zinf_name, values)
        return values

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to go to another process: its save would not end the staging here."""
        raise Unsupported(
            "dcp.async_save() of state in zinf by another process: leave out "
            "async_checkpointer_type=AsyncCheckpointerType.PROCESS. The daemon does most of the "
            "work beside this process"
        )


class Staging:
    """The state of a model at its newest step. Collective. In the script's thread, between steps.

    What is left of a save that failed goes with the object.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.has_entries = False
        self._reference = reference.take(engine)
        self._socket_path = engine.session.config.socket_path
        self._directory = ""
        self._readers: dict[str, FileReader] = {}
        self._lock = threading.Lock()  # guards _readers
        self._left: dict[str, Any] = {}  # what _remove() shall remove
        if engine.session.rank == 0:
            self._left["snapshot"] = self._reference
        self._end = weakref.finalize(self, _remove, self._left, self._socket_path)

    def place(self, path: str) -> None:
        """Say where the checkpoint lies: the same on all ranks."""
        self._directory = os.path.join(path, f".zinf-step-{self._reference.step}")

    def export(self) -> None:
        """Have the daemon's state in files. One rank calls it, which is the job's first one."""
        if not self._left:
            raise Unsupported(
                f"dcp.async_save(): rank {self.engine.session.rank} of zinf is the coordinator of "
                "torch.distributed. Both need one order of ranks: give dcp.async_save() a "
                "process_group that begins with zinf's rank 0"
            )
        directory = self._directory
        self._left["directory"] = directory
        _remove_files(directory)  # of a run that was killed
        words = ("export", self._reference.source, directory, "--format", "zinf")
        admin.run(*words, socket_path=self._socket_path)

    def read(self, file: str, name: str, target: torch.Tensor) -> None:
        """Copy a tensor of a file into memory of its type and number of elements. Any thread."""
        with self._lock:
            reader = self._readers.get(file)
            if reader is None:
                path = os.path.join(self._directory, f"{file}.safetensors")
                reader = self._readers[file] = FileReader(path)
        if name not in reader:
            raise CheckpointError(f"{reader.path} has no tensor '{name}'")
        reader.read_into(name, target.view(reader.entry(name).shape))

    def close(self) -> None:
        """Close the files in this rank."""
        with self._lock:
            for reader in self._readers.values():
                reader.close()
            self._readers.clear()

    def finish(self, path: str, is_kept: bool) -> None:
        """End a save that succeeded. is_kept: the snapshot stays, and zinf.json names it."""
        self.close()
        if is_kept:
            self._reference.write(path, self._socket_path)
            self._left.pop("snapshot", None)
        self._end()


def _remove_files(directory: str) -> None:
    for path in (directory, f"{directory}.tmp"):
        shutil.rmtree(path, ignore_errors=True)


def _remove(left: dict[str, Any], socket_path: str | None) -> None:
    """Remove what a staging has left: files, and the snapshot."""
    if "directory" in left:
        _remove_files(left["directory"])
    if "snapshot" in left:
        left["snapshot"].remove(socket_path)
