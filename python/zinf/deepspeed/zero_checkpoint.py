# SPDX-License-Identifier: Apache-2.0
"""Reads DeepSpeed's checkpoints: weights in float32, optimizer state, buffers, counts, schedule.

Each rank of DeepSpeed writes files below DIR/TAG, which zero_to_fp32.py merges:

stages 0 to 2  mp_rank_00_model_states.pt                the model in its type, names and shapes
stage 3        zero_pp_rank_N_mp_rank_00_model_states.pt one of each rank
stages 1 to 3  *zero_pp_rank_N_mp_rank_00_optim_states.pt float32 weights and optimizer state

In stages 1 and 2 the weights of a parameter group form one vector, which is cut into equal parts
for the ranks. In stage 3 each parameter is cut by itself, padded to the number of ranks, and a
rank has its parts one after another. The optimizer state is divided as the weights are. A file is
mapped where torch can do it, and a tensor is assembled when it is asked for. The package deepspeed
is not needed: objects of unknown classes are not made.
"""

from __future__ import annotations

import glob
import os
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch

from ..errors import Unsupported
from ..weights import CheckpointError

__all__ = ["ZeroCheckpoint", "is_one"]

_MODEL_STATES = "mp_rank_00_model_states.pt"
_MODEL_STATES_3 = "zero_pp_rank_0_mp_rank_00_model_states.pt"
_OPTIMIZER = "optimizer_state_dict"

# What DeepSpeed writes into the file of the model. Other keys are the script's.
_OWN_KEYS = frozenset(
    str.split(
        """
    module buffer_names optimizer param_shapes frozen_param_shapes shared_params
    frozen_param_fragments lr_scheduler data_sampler random_ltd sparse_tensor_module_names
    skipped_steps global_steps global_samples dp_world_size mp_world_size ds_config ds_version
    checkpoint_parallel_dimensions num_experts
    """
    )
)

# The functions and classes that a file may name, by module; of torch also types and storages.
_KNOWN: dict[str, frozenset[str]] = {
    "torch": frozenset(("Size", "Tensor", "device")),
    "torch.nn.parameter": frozenset(("Parameter",)),
    "torch._tensor": frozenset(("_rebuild_from_type_v2",)),
    "torch._utils": frozenset(
        ("_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_parameter_with_state")
    ),
    "collections": frozenset(("OrderedDict", "defaultdict", "deque")),
    "builtins": frozenset(("set", "frozenset", "slice", "complex", "bytearray", "range")),
    "numpy": frozenset(("dtype", "ndarray")),
    "numpy.core.multiarray": frozenset(("scalar", "_reconstruct")),
    "numpy._core.multiarray": frozenset(("scalar", "_reconstruct")),
    "_codecs": frozenset(("encode",)),
    "argparse": frozenset(("Namespace",)),
}


def _is_known(module: str, name: str) -> bool:
    if module == "torch" and "." not in name:
        is_type = isinstance(getattr(torch, name, None), torch.dtype)
        return is_type or name.endswith("Storage") or name in _KNOWN["torch"]
    return name in _KNOWN.get(module, ())


class Unknown:
    """An object of a class that is not loaded."""

    def __init__(self, *values: Any, **named: Any) -> None:
        self.values = values

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        """Take no entries."""

    def append(self, value: Any) -> None:
        """Take no elements."""

    def __int__(self) -> int:
        value = self.values[-1]
        return _STAGES[value] if isinstance(value, str) else int(value)


# ZeroStageEnum, whose members Python 3.11 writes by name and other releases by value.
_STAGES = {"disabled": 0, "optimizer_states": 1, "gradients": 2, "weights": 3}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return super().find_class(module, name) if _is_known(module, name) else Unknown


# What torch.load() asks of a pickle module.
_pickle: Any = SimpleNamespace(
    Unpickler=_Unpickler,
    load=lambda file, **options: _Unpickler(file, **options).load(),
    loads=pickle.loads,
    PickleError=pickle.PickleError,
    UnpicklingError=pickle.UnpicklingError,
    __name__="zinf.deepspeed.zero_checkpoint",
)


def is_one(directory: str) -> bool:
    """Whether a directory has files of DeepSpeed's checkpoint."""
    return any(
        os.path.exists(os.path.join(directory, name)) for name in (_MODEL_STATES, _MODEL_STATES_3)
    )


def _load(path: str) -> dict[str, Any]:
    torchs: Any = torch.serialization
    try:
        if hasattr(torchs, "add_safe_globals"):  # torch 2.4: all of these options are there
            value = torch.load(
                path, map_location="cpu", pickle_module=_pickle, weights_only=False, mmap=True
            )
        else:  # torch.load() of 1.13 ignores pickle_module
            with torchs._open_zipfile_reader(path) as reader:
                value = torchs._load(reader, "cpu", _pickle, encoding="utf-8")
    except Exception as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: is no file of DeepSpeed's checkpoint")
    return value


def _numbered(directory: str, pattern: str) -> list[str]:
    """Return files in the order of the ranks in their names."""

    def key(path: str) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", os.path.basename(path))]

    return sorted(glob.glob(os.path.join(glob.escape(directory), pattern)), key=key)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


class ZeroCheckpoint:
    """A checkpoint directory of DeepSpeed. `name in checkpoint`: it has this parameter.

    buffers: by name. states: counts and the schedule. client_state: what the script had saved.
    stage: of ZeRO. counts, param_groups: steps and hyperparameters of the optimizer. stage0: the
    state dict of the optimizer, which stage 0 has in place of moment().
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._refuse_parts()
        self._parts: dict[str, list[torch.Tensor]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._moments: dict[str, dict[str, list[torch.Tensor]]] = {}
        self._no_moments = ""  # why there is no optimizer state
        self._vectors: list[list[torch.Tensor]] = []
        self.stage = 0
        self.counts: set[int] = set()
        self.param_groups: list[dict[str, Any]] = []
        self.stage0: Any = None  # the optimizer's state dict without ZeRO
        optimizer_files = _numbered(directory, "*_optim_states.pt")
        model_files = _numbered(directory, "*_model_states.pt")
        first = _load(model_files[0])
        if "module" not in first:
            raise CheckpointError(f"{model_files[0]}: has no 'module': is no file of DeepSpeed's")
        names = first.get("buffer_names") or []
        module: Mapping[str, Any] = first["module"]
        self.buffers: dict[str, torch.Tensor] = {n: module[n] for n in names if n in module}
        if optimizer_files:
            self._take_zero(first, model_files, optimizer_files)
        elif os.path.basename(model_files[0]) == _MODEL_STATES_3:
            raise CheckpointError(
                f"{directory}: the model is divided over ranks, and the files *_optim_states.pt "
                "with its weights are missing"
            )
        else:
            self.stage0 = first.get("optimizer")
            for name, value in module.items():
                if isinstance(value, torch.Tensor) and name not in self.buffers:
                    self._add(name, tuple(value.shape), [value.reshape(-1)])
        for name, other in (first.get("shared_params") or {}).items():
            if other in self._parts and name not in self._parts:
                self._add(name, self._shapes[other], self._parts[other])
        self.states: dict[str, Any] = {
            key: first[key]
            for key in ("global_steps", "global_samples", "skipped_steps", "lr_scheduler")
            if key in first
        }
        if "global_steps" not in self.states:
            raise CheckpointError(f"{model_files[0]}: has no 'global_steps'")
        self.client_state = {k: v for k, v in first.items() if k not in _OWN_KEYS}

    def _refuse_parts(self) -> None:
        if os.path.isdir(os.path.join(self.directory, "zero")):
            raise Unsupported(
                f"{self.directory} is a universal checkpoint of DeepSpeed, which zinf does not "
                "read: give the checkpoint from which it was made"
            )
        for path in sorted(os.listdir(self.directory)):
            match = re.search(r"mp_rank_(\d+)_", path)
            if match and int(match[1]) > 0:
                raise Unsupported(
                    f"{self.directory} has '{path}' of tensor parallelism: zinf does not divide "
                    "layers over ranks. Merge it with DeepSpeed first"
                )
            if "expert" in path or path.startswith("layer_"):
                raise Unsupported(
                    f"{self.directory} has '{path}' of experts or of a pipeline: zinf does not "
                    "read it. Merge it with DeepSpeed first"
                )

    def _add(self, name: str, shape: tuple[int, ...], parts: list[torch.Tensor]) -> None:
        self._shapes[name], self._parts[name] = shape, parts

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a parameter."""
        return self._shapes[name]

    def tensor(self, name: str) -> torch.Tensor:
        """Return a parameter: in float32, where the checkpoint has it so."""
        shape, parts = self._shapes[name], self._parts[name]
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        return flat[: _count(shape)].view(shape)

    # ---- stages 1 to 3 ----

    def _take_zero(
        self, first: dict[str, Any], model_files: list[str], optimizer_files: list[str]
    ) -> None:
        ranks = []
        for path in optimizer_files:
            value = _load(path).get(_OPTIMIZER)
            if not isinstance(value, dict) or "zero_stage" not in value:
                raise CheckpointError(f"{path}: is no file of ZeRO's optimizer state")
            ranks.append(value)
        stage = int(ranks[0]["zero_stage"])
        count = ranks[0]["partition_count"]
        count = max(count) if isinstance(count, (list, tuple)) else int(count)
        if count != len(ranks):
            raise CheckpointError(
                f"{self.directory}: {count} ranks wrote optimizer states, and {len(ranks)} files "
                "are there: the save did not end, or files are missing"
            )
        groups = [
            {name: tuple(shape) for name, shape in group.items()}
            for group in first.get("param_shapes") or []
        ]
        key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
        vectors: list[list[torch.Tensor]] = []
        for path, rank in zip(optimizer_files, ranks):
            if not rank.get(key):
                raise Unsupported(
                    f"{path} has no '{key}': the weights lay on NVMe. Save the checkpoint without "
                    "offload_optimizer nvme, or merge it with DeepSpeed first"
                )
            vectors.append([vector.reshape(-1) for vector in rank[key]])
        self._vectors = vectors
        self.stage = stage
        paddings = ranks[0].get("param_alignment_paddings")
        self._take(groups, vectors, paddings, self._parts)
        for group in groups:
            self._shapes.update(group)
        self._take_moments(optimizer_files, ranks, groups, paddings)
        if stage == 3:
            frozen = [_load(path) for path in model_files]
            self._take_frozen(first, [f.get("frozen_param_fragments") or {} for f in frozen])
        else:
            self._take_frozen(first, [first.get("frozen_param_fragments") or {}])

    def _take_frozen(self, first: dict[str, Any], fragments: list[Mapping[str, Any]]) -> None:
        for name, shape in (first.get("frozen_param_shapes") or {}).items():
            parts = [part[name].reshape(-1) for part in fragments if name in part]
            self._check(name, tuple(shape), parts)
            self._add(name, tuple(shape), parts)

    def _take(
        self,
        groups: list[dict[str, tuple[int, ...]]],
        vectors: list[list[torch.Tensor]],
        paddings: Any,
        parts: dict[str, list[torch.Tensor]],
    ) -> None:
        """Note the parts of each parameter. vectors: of each rank those of its groups."""
        if self.stage == 3:
            self._take_stage3({n: s for g in groups for n, s in g.items()}, vectors, parts)
        else:
            self._take_vectors(groups, vectors, paddings, parts)

    def _take_vectors(
        self,
        groups: list[dict[str, tuple[int, ...]]],
        vectors: list[list[torch.Tensor]],
        paddings: Any,
        parts: dict[str, list[torch.Tensor]],
    ) -> None:
        """Stages 1 and 2: the parameters of a group form one vector, cut into equal parts."""
        for number, shapes in enumerate(groups):
            pieces = [rank[number] for rank in vectors]
            at = 0
            for index, (name, shape) in enumerate(shapes.items()):
                parts[name] = _range(pieces, at, at + _count(shape))
                self._check(name, shape, parts[name])
                at += _count(shape)
                if paddings is not None:
                    at += int(paddings[number][index])

    def _take_stage3(
        self,
        shapes: dict[str, tuple[int, ...]],
        vectors: list[list[torch.Tensor]],
        parts: dict[str, list[torch.Tensor]],
    ) -> None:
        """Stage 3: the vector of a rank holds the rank's part of every parameter."""
        at = 0
        for name, shape in shapes.items():
            width = -(-_count(shape) // len(vectors))
            parts[name] = [part for rank in vectors for part in _range(rank, at, at + width)]
            self._check(name, shape, parts[name])
            at += width

    def _take_moments(
        self,
        files: list[str],
        ranks: list[dict[str, Any]],
        groups: list[dict[str, tuple[int, ...]]],
        paddings: Any,
    ) -> None:
        """Note the parts of the optimizer state; what is wrong with it is told when it is used."""
        key = "optimizer_state_dict" if self.stage == 3 else "base_optimizer_state"
        found: list[list[dict[str, Any]]] = []
        for path, rank, weights in zip(files, ranks, self._vectors):
            base = rank.get(key)
            if not isinstance(base, dict) or "state" not in base or "param_groups" not in base:
                self._no_moments = f"{path} has no '{key}' with the state of every parameter"
                return
            entries = [base["state"].get(number) or {} for number in range(len(weights))]
            found.append(entries)
            self.param_groups = base["param_groups"]
        first = found[0][0] if found and found[0] else {}
        kinds = [n for n, v in first.items() if isinstance(v, torch.Tensor) and v.dim() > 0]
        if not kinds:
            self._no_moments = f"{files[0]} has no optimizer state, or it lay on NVMe"
            return
        for entries in found:
            for entry in entries:
                count = entry.get("step", self.param_groups[0].get("step"))
                if count is not None:
                    self.counts.add(int(count))
        for kind in kinds:
            vectors = [[entry.get(kind) for entry in entries] for entries in found]
            if any(not isinstance(v, torch.Tensor) for rank in vectors for v in rank):
                self._no_moments = f"{self.directory}: some ranks have no {kind}"
                return
            self._moments[kind] = {}
            flat = [[v.reshape(-1) for v in rank if v is not None] for rank in vectors]
            self._take(groups, flat, paddings, self._moments[kind])

    def check_moments(self, kinds: Iterable[str]) -> None:
        """Raise CheckpointError unless the files have these kinds of optimizer state."""
        if self.stage == 0:
            raise CheckpointError(f"{self.directory}: stage 0 has no divided optimizer state")
        if self._no_moments:
            raise CheckpointError(
                f"{self._no_moments}: load with load_optimizer_states=False, and the optimizer "
                "begins with zeros"
            )
        for kind in kinds:
            if kind not in self._moments:
                raise CheckpointError(
                    f"{self.directory}: the optimizer state has no {kind}, but "
                    f"{', '.join(sorted(self._moments)) or 'nothing'}: another optimizer wrote it"
                )
        if len(self.counts) > 1:
            raise CheckpointError(
                f"{self.directory}: groups counted different numbers of steps "
                f"({', '.join(map(str, sorted(self.counts)))}), and zinf counts once for all"
            )

    def has_moments(self, name: str) -> bool:
        """Whether the files have optimizer state of a parameter."""
        return all(name in parts for parts in self._moments.values())

    def moment(self, name: str, kind: str) -> torch.Tensor:
        """Return one kind of a parameter's optimizer state, of the parameter's shape."""
        shape, parts = self._shapes[name], self._moments[kind][name]
        flat = parts[0] if len(parts) == 1 else torch.cat(parts)
        return flat[: _count(shape)].view(shape)

    def _check(self, name: str, shape: tuple[int, ...], parts: list[torch.Tensor]) -> None:
        found = sum(part.numel() for part in parts)
        if found < _count(shape) or not parts:
            raise CheckpointError(
                f"{self.directory}: '{name}' has {_count(shape)} elements, and the files of the "
                f"ranks have {found} of them"
            )


def _range(pieces: list[torch.Tensor], start: int, end: int) -> list[torch.Tensor]:
    """Return the elements from `start` to `end` of pieces that follow one another."""
    found: list[torch.Tensor] = []
    at = 0
    for piece in pieces:
        first, last = max(start - at, 0), min(end - at, piece.numel())
        if first < last or (start == end and not found):
            found.append(piece[first : max(first, last)])
        at += piece.numel()
    return found
