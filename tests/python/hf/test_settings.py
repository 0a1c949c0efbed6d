# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205, PLC0415, RUF043
"""Goal: settings reach zinf from every source; unsupported arguments are refused by name.
Method: Trainer objects that do not train; no daemon is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
import zinf
import zinf.accelerate
import zinf.transformers
from models import Text, gpt2
from zinf.scratch import name_for

DEEPSPEED: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"},
    },
}


def trainer(
    tmp_path: Path, kind: Any = transformers.TrainingArguments, settings: Any = None, **args: Any
) -> Any:
    made = kind(output_dir=str(tmp_path / "my run"), use_cpu=True, report_to=[], **args)
    return zinf.transformers.Trainer(model=gpt2(), args=made, train_dataset=Text(4), zinf=settings)


def test_defaults(tmp_path: Path) -> None:
    config = trainer(tmp_path, gradient_accumulation_steps=3)._zinf_config()
    assert config.gradient_accumulation_steps == 3
    assert config.job is None
    name = name_for(str(tmp_path / "my run"))
    assert name.startswith("hf-my-run-")
    assert len(name) == 20
    assert name == name_for(f"{tmp_path}/other/../my run") != name_for(f"{tmp_path}/other/my run")


def test_positional_arguments_are_those_of_the_stock_trainer(tmp_path: Path) -> None:
    model = gpt2()
    args = transformers.TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[])
    made = zinf.transformers.Trainer(model, args, train_dataset=Text(4))
    assert made.model is model
    assert made.args is args
    assert isinstance(made, transformers.Trainer)


@pytest.mark.parametrize("form", ["dict", "config", "environment"])
def test_settings_of_zinf(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = {"strategy": "zero2", "offload_param": "nvme", "job": "mine"}
    if form == "config":
        settings = zinf.Config(**settings)
    elif form == "environment":
        for name, value in settings.items():
            monkeypatch.setenv("ZINF_" + name.upper(), value)
        settings = None
    config = trainer(tmp_path, settings=settings)._zinf_config()
    assert (config.strategy, config.offload_param) == ("zero2", "nvme")
    assert form == "environment" or config.job == "mine"


@pytest.mark.parametrize(
    "kind", [transformers.TrainingArguments, zinf.transformers.TrainingArguments]
)
@pytest.mark.parametrize("form", ["dict", "path"])
def test_deepspeed_in_the_arguments(kind: Any, form: str, tmp_path: Path) -> None:
    given: Any = DEEPSPEED
    if form == "path":
        given = str(tmp_path / "ds.json")
        Path(given).write_text(json.dumps(DEEPSPEED))
    made = trainer(
        tmp_path, kind, deepspeed=given, gradient_accumulation_steps=2, learning_rate=3e-4
    )
    config = made._zinf_config()
    assert (config.strategy, config.offload_optimizer, config.gradient_accumulation_steps) == (
        "zero3",
        "nvme",
        2,
    )
    assert not made.is_deepspeed_enabled
    from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled

    assert not is_deepspeed_zero3_enabled()


def test_a_deepspeed_file_that_contradicts_is_refused(tmp_path: Path) -> None:
    for key, value, name in (
        ("train_micro_batch_size_per_gpu", 7, "per_device_train_batch_size is 8"),
        ("gradient_accumulation_steps", 5, "gradient_accumulation_steps is 1"),
        ("gradient_clipping", 0.25, "max_grad_norm is 1.0"),
    ):
        made = trainer(tmp_path, settings={**DEEPSPEED, key: value})
        with pytest.raises(zinf.InvalidArgument, match=f"{key} is {value}.*{name}"):
            made._zinf_config()
    made = trainer(
        tmp_path, settings={**DEEPSPEED, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}}
    )
    with pytest.raises(zinf.InvalidArgument, match="optimizer.params.lr is 0.5"):
        made._zinf_config()
    scheduler = {"type": "WarmupLR", "params": {"warmup_max_lr": 5e-5, "warmup_num_steps": 3}}
    made = trainer(tmp_path, settings={**DEEPSPEED, "scheduler": scheduler})
    with pytest.raises(zinf.Unsupported, match="set lr_scheduler_type"):
        made._zinf_config()


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (
            {"auto_find_batch_size": True},
            "auto_find_batch_size is not supported by zinf: set per_device",
        ),
        ({"bf16_full_eval": True}, "bf16_full_eval is not supported by zinf"),
        ({"torch_compile": True}, "torch_compile is not supported by zinf"),
    ],
)
def test_unsupported_arguments_are_refused(args: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(zinf.Unsupported, match=text):
        trainer(tmp_path, **args)


def test_optimizers(tmp_path: Path) -> None:
    for name in ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "lion_32bit"):
        made = trainer(tmp_path, optim=name)
        kind, settings = made.get_optimizer_cls_and_kwargs(made.args, made.model)
        assert settings["lr"] == 5e-5
        assert "fused" not in settings
        assert name.startswith(kind.__name__.lower())
    made = trainer(tmp_path, optim="adafactor")
    with pytest.raises(
        ValueError, match="optim='adafactor' is not supported: zinf has adamw_torch, "
    ):
        made.create_optimizer()


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(zinf.InvalidArgument, match="'stratgey'; the nearest is 'strategy'"):
        trainer(tmp_path, settings={"stratgey": "zero3"})._zinf_config()
