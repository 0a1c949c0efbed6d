# SPDX-License-Identifier: Apache-2.0
"""from_pretrained() inside zinf.init(): a model whose weights stay in their files.

The model is built without memory for its parameters. zinf.prepare() reads the files unit by unit
into zinf's memory. So memory holds one unit, and a model may be larger than memory. Only local
directories with safetensors files are read; nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import nn

from .errors import InvalidArgument, Unsupported
from .module.init import _PendingParameter, _Recipe, is_pending
from .weights import CheckpointError, Reader, named_tensors, tied_names

__all__ = ["deferred"]

_words = str.split

_IGNORED = _words(
    "_commit_hash _from_auto _from_pipeline adapter_kwargs cache_dir code_revision force_download "
    "local_files_only low_cpu_mem_usage proxies revision token trust_remote_code use_auth_token "
    "use_safetensors weights_only"
)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Let from_pretrained() of transformers leave the weights in their files, inside the block."""
    kind: Any = transformers.PreTrainedModel
    stock = kind.__dict__["from_pretrained"]
    kind.from_pretrained = classmethod(_from_pretrained)
    try:
        yield
    finally:
        kind.from_pretrained = stock


def _from_pretrained(kind: Any, path: Any, *model_args: Any, **named: Any) -> Any:
    directory = os.fspath(path)
    if not os.path.isdir(directory):
        raise InvalidArgument(
            f"from_pretrained('{directory}') inside zinf.init() reads local directories, and this "
            "is none: download the model first, and give its directory"
        )
    config = named.pop("config", None)
    dtype = named.pop("dtype", None) or named.pop("torch_dtype", None)
    attention = named.pop("attn_implementation", None)
    named = {name: value for name, value in named.items() if name not in _IGNORED}
    if not isinstance(config, transformers.PretrainedConfig):
        config, named = kind.config_class.from_pretrained(
            directory, return_unused_kwargs=True, **named
        )
    refused = [name for name, value in named.items() if value]
    if refused:
        raise Unsupported(
            f"from_pretrained() inside zinf.init() does not support {', '.join(sorted(refused))}"
        )
    reader = Reader(directory)
    if attention is not None:
        config._attn_implementation = attention
    config.name_or_path = directory
    with _default_dtype(_dtype(dtype, config, reader)), _no_values():
        model = kind(config, *model_args)
    model.tie_weights()
    _set_sources(model, reader)
    _load_generation(model, directory)
    model.eval()
    return model


def _dtype(given: Any, config: Any, reader: Reader) -> torch.dtype:
    """Return the type of the parameters, by the rules of the installed transformers."""
    if isinstance(given, torch.dtype):
        return given
    if given is None and int(transformers.__version__.split(".", maxsplit=1)[0]) < 5:
        return torch.float32
    if given in (None, "auto"):
        known = getattr(config, "dtype", None) or getattr(config, "torch_dtype", None)
        if known is None:
            types = [reader.entry(name).dtype for name in reader]
            known = next((t for t in types if t.is_floating_point), torch.float32)
        given = known
    if isinstance(given, str):
        given = getattr(torch, given, None)
    if not isinstance(given, torch.dtype):
        raise InvalidArgument(f"from_pretrained(): dtype is {given!r}: give a torch.dtype")
    return given


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    former = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(former)


@contextlib.contextmanager
def _no_values() -> Iterator[None]:
    """Build modules whose parameters have neither memory nor first values."""
    try:
        from transformers.initialization import no_init_weights  # noqa: PLC0415 - transformers 5
    except ImportError:
        from transformers.modeling_utils import (  # type: ignore[attr-defined,no-redef] # noqa: PLC0415
            no_init_weights,
        )
    former: Any = nn.Module.register_parameter

    def register(module: nn.Module, name: str, param: Any) -> None:
        if type(param) is nn.Parameter and param.is_floating_point() and param.numel() > 1:
            _take_memory(param)
        former(module, name, param)

    setattr(nn.Module, "register_parameter", register)  # noqa: B010 - a method of torch
    try:
        with no_init_weights():
            yield
    finally:
        setattr(nn.Module, "register_parameter", former)  # noqa: B010 - likewise


def _take_memory(parameter: Any) -> None:
    recipe = _Recipe(parameter)
    parameter.data = torch.zeros((), dtype=parameter.dtype).expand(recipe.shape)
    parameter.__class__ = _PendingParameter
    parameter._zinf_recipe, parameter._zinf_path = recipe, ()


class _Source:
    """Reads one tensor of the files, when zinf has memory for it."""

    def __init__(self, reader: Reader, name: str) -> None:
        self.reader = reader
        self.name = name

    def __call__(self, target: torch.Tensor) -> torch.Tensor:
        self.reader.read_into(self.name, target)
        return target


def _set_sources(model: Any, reader: Reader) -> None:
    """Let each parameter be read from the files. A missing parameter gets first values."""
    state = torch.get_rng_state()
    stored = tied_names(model)
    groups: dict[str, list[str]] = {}
    for name, kept in stored.items():
        groups.setdefault(kept, []).append(name)
    used: set[str] = set()
    missing: list[str] = []
    for name, tensor in named_tensors(model):
        if stored[name] != name:
            continue
        source = _find(reader, groups[name], getattr(model, "base_model_prefix", ""))
        if source is None:
            missing.append(name)
            continue
        used.add(source)
        if tuple(tensor.shape) != reader.entry(source).shape:
            raise CheckpointError(
                f"{reader.path}: tensor {source!r} has shape {reader.entry(source).shape}, but the "
                f"model wants {tuple(tensor.shape)}"
            )
        if is_pending(tensor):
            pending: Any = tensor
            pending._zinf_recipe.records = [((), _Source(reader, source), (), {}, state)]
        else:
            reader.read_into(source, tensor)
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    missing = [name for name in missing if name not in ignored]
    unused = [name for name in reader if name not in used]
    if missing:
        _begin_missing(model, reader, missing, unused)


def _find(reader: Reader, names: list[str], prefix: str) -> str | None:
    """Return the name of a tensor in the files: with or without the base model's prefix."""
    for name in names:
        for candidate in (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")):
            if candidate in reader:
                return candidate
    return None


def _begin_missing(model: Any, reader: Reader, missing: list[str], unused: list[str]) -> None:
    shown = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
    if unused and _is_converted(model):
        raise Unsupported(
            f"{reader.path}: {len(missing)} tensors of {type(model).__name__} are missing "
            f"({shown}), and {len(unused)} others are there, which transformers converts. Load it "
            "once outside zinf.init(), and save_pretrained(save_original_format=False)"
        )
    transformers.utils.logging.get_logger("transformers.zinf").warning(
        f"{reader.path} does not have {len(missing)} tensors of {type(model).__name__}: {shown}. "
        "They get first values: train the model before use"
    )
    names = set(missing)
    for prefix, module in model.named_modules():
        own = [n for n in module._parameters if (f"{prefix}.{n}" if prefix else n) in names]
        kept = {}
        for name, parameter in module._parameters.items():
            if is_pending(parameter) and name not in own:
                kept[name] = parameter._zinf_recipe.records
            elif is_pending(parameter):
                parameter._zinf_recipe.start = torch.zeros((), dtype=parameter.dtype)
        if own:
            model._init_weights(module)
            for name, records in kept.items():
                module._parameters[name]._zinf_recipe.records = records


def _is_converted(model: Any) -> bool:
    """Whether transformers changes tensors of this model's files when it loads them."""
    try:
        from transformers.conversion_mapping import (  # noqa: PLC0415 - transformers 5
            get_model_conversion_mapping,
        )
    except ImportError:
        return False
    return len(get_model_conversion_mapping(model, add_legacy=False)) > 0


def _load_generation(model: Any, directory: str) -> None:
    is_there = os.path.isfile(os.path.join(directory, "generation_config.json"))
    if is_there and hasattr(model, "generation_config"):
        model.generation_config = transformers.GenerationConfig.from_pretrained(directory)
