# SPDX-License-Identifier: Apache-2.0
"""Checkpoint directories of Trainer and Accelerate refer to snapshots of the daemon.

The optimizer's state stays in the daemon's store. A checkpoint directory holds the model's weights
as files, and `zinf.json`, which names the snapshot with parameters and optimizer state of the same
step. A snapshot is removed with the directory that refers to it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
from dataclasses import asdict, dataclass
from typing import Any

from . import admin
from .errors import DaemonNotFound, ZinfError
from .weights import CheckpointError, write_json

__all__ = ["FILE", "Reference", "References", "gone", "keep", "take"]

FILE = "zinf.json"
_FORMAT = "zinf-reference"
_logger = logging.getLogger("zinf")


@dataclass(frozen=True)
class Reference:
    """The contents of `zinf.json`: a snapshot, its step, and the ranks that made it."""

    job: str
    snapshot: str
    step: int
    world_size: int

    @property
    def source(self) -> str:
        """The name of the snapshot for a job that begins with it: "JOB/SNAPSHOT"."""
        return f"{self.job}/{self.snapshot}"

    @classmethod
    def read(cls, directory: str) -> Reference | None:
        """Read the reference of a checkpoint directory. None: it has no `zinf.json`."""
        path = os.path.join(directory, FILE)
        try:
            with open(path, encoding="utf-8") as file:
                value = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise CheckpointError(f"{path}: cannot be read ({error})") from error
        try:
            if value["format"] != _FORMAT:
                raise ValueError(f"format {value['format']!r}")
            names = str(value["job"]), str(value["snapshot"])
            return cls(*names, int(value["step"]), int(value["world_size"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path}: is no reference to a snapshot ({error!r})") from error

    def write(self, directory: str, socket_path: str | None) -> None:
        """Write `zinf.json`, and remove the snapshot to which an older one referred."""
        former = None
        with contextlib.suppress(CheckpointError):
            former = Reference.read(directory)
        value = {"format": _FORMAT, "version": 1, **asdict(self)}
        write_json(os.path.join(directory, FILE), value)
        if former is not None and former != self:
            former.remove(socket_path)

    def remove(self, socket_path: str | None) -> None:
        """Remove the snapshot. A failure is only logged: the checkpoint is gone already."""
        try:
            admin.delete_snapshot(self.source, missing_ok=True, socket_path=socket_path)
        except ZinfError as error:
            _logger.warning("zinf: the snapshot %s stays: %s", self.source, error)


def take(engine: Any) -> Reference:
    """Keep the newest step of an engine as a snapshot. Collective.

    The name on the first rank counts: a step may be saved more than once.
    """
    session = engine.session
    name = f"step-{engine.committed_step}-{secrets.token_hex(4)}"
    step = engine.snapshot(name)
    return Reference(session.job, name, step, session.world_size)


def keep(engine: Any, directory: str) -> Reference:
    """Keep the newest step of an engine as a snapshot, and write the reference to it. Collective.

    The first rank writes.
    """
    reference = take(engine)
    if engine.session.rank == 0:
        reference.write(directory, engine.session.config.socket_path)
    return reference


def gone(directory: str, reference: Reference, error: ZinfError) -> ZinfError:
    """Return the exception for a snapshot that cannot be used; another error as it is."""
    if error.errno != errno.ENOENT or isinstance(error, DaemonNotFound):
        return error
    return CheckpointError(
        f"{directory} needs the snapshot {reference.source} of step {reference.step}, which the "
        f"daemon does not have: {error}. The directory still has the weights: load them with "
        "from_pretrained(), and train without resuming"
    )


class References:
    """The references in the checkpoints of a directory, and the snapshots of those that vanish."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._known: dict[str, Reference] = {}

    def note(self) -> None:
        """Note the checkpoints that are there."""
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.directory):
                if entry.is_dir():
                    with contextlib.suppress(CheckpointError):
                        reference = Reference.read(entry.path)
                        if reference is not None:
                            self._known[entry.path] = reference

    def add(self, directory: str, reference: Reference) -> None:
        """Note a checkpoint that was just written. It may vanish before note() is called again."""
        self._known[directory] = reference

    def remove_vanished(self, socket_path: str | None) -> None:
        """Remove the snapshots of noted checkpoints that are not there any more."""
        for path, reference in list(self._known.items()):
            if not os.path.isdir(path):
                del self._known[path]
                reference.remove(socket_path)
        self.note()
