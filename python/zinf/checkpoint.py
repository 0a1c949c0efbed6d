# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in torch's distributed format (DCP), and model files in the safetensors format.

    import torch.distributed.checkpoint as dcp
    state = zinf.checkpoint.state_dict(model, optimizer)
    dcp.save(state, storage_writer=zinf.checkpoint.Writer("DIR"))
    dcp.load(state, storage_reader=zinf.checkpoint.Reader("DIR"))

Names and files are torch's: a checkpoint of FSDP2 or DDP is read into a model in zinf, and torch
reads what zinf wrote. save_model() and load_model() do the same with safetensors files. Memory
holds one unit of the model, or one tensor of the optimizer state.

torch 1.13 has no DCP: there Reader, Writer and state_dict() raise Unsupported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from .reference import Reference
from .weights import CheckpointError, fill, save_model
from .weights import Reader as _FileReader

if TYPE_CHECKING:
    from .dcp import Reader, Writer, state_dict

__all__ = [
    "CheckpointError",
    "Reader",
    "Writer",
    "load_model",
    "save_model",
    "snapshot_in",
    "state_dict",
]


def load_model(model: torch.nn.Module, path: str | os.PathLike[str]) -> None:
    """Read all tensors of a model from safetensors files. Of a model in zinf: on all ranks.

    path: a directory with model.safetensors or shards and their index, or one file. Other types of
        float are converted. The values of a model in zinf are committed, and its optimizer state
        stays.
    Raises CheckpointError if a tensor is missing or has another shape. After a damaged file the
    model may have a part of the values.
    """
    with _FileReader(path) as reader:
        fill(model, reader)


def snapshot_in(path: str | os.PathLike[str]) -> str:
    """Return "JOB/NAME" of the snapshot that belongs to a directory, for zinf.prepare(snapshot=).

    Raises CheckpointError if the directory names none.
    """
    reference = Reference.read(os.fspath(path))
    if reference is None:
        raise CheckpointError(f"{os.fspath(path)} has no zinf.json: it names no snapshot")
    return reference.source


def __getattr__(name: str) -> Any:
    if name in ("Reader", "Writer", "state_dict"):
        from . import dcp  # noqa: PLC0415 - torch 1.13 has no DCP

        return getattr(dcp, name)
    raise AttributeError(f"module 'zinf.checkpoint' has no attribute '{name}'")
