# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: LoRA of peft trains in zinf's Trainer as in the unmodified one, and its adapters are saved
and continued. Method: pairs of trainings, whose logs, files and adapters are compared.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Ranks, start
from models import MODELS, Text

NVME = {"strategy": "zero3", "offload_param": "nvme", "offload_optimizer": "nvme"}
SAVES = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "eval_steps": 3}
CASES: dict[str, dict[str, Any]] = {
    "llama": {
        "model": "llama",
        "lora": {},
        "args": SAVES,
        "actions": ["save_without_copies"],
    },
    "gpt2": {"model": "gpt2", "lora": {}, "args": {"gradient_accumulation_steps": 2}},
    "checkpointing": {
        "model": "llama",
        "lora": {"modules_to_save": ["lm_head"]},
        "args": {"gradient_checkpointing": True, **SAVES},
    },
    "best": {
        "model": "llama",
        "lora": {"use_dora": True},
        "args": {**SAVES, "load_best_model_at_end": True, "learning_rate": 0.05},
    },
}


@pytest.fixture(scope="module", params=[1, 2])
def done(request: pytest.FixtureRequest, daemon: str, tmp_path_factory: Any) -> Any:
    directory: Path = tmp_path_factory.mktemp(f"peft{request.param}")
    cases = []
    for name, case in CASES.items():
        for trainer in ("stock", "zinf"):
            output = str(directory / f"{name}-{trainer}")
            args = {**case["args"], "output_dir": output, "learning_rate": 0.01}
            more = {"zinf": NVME} if trainer == "zinf" else {}
            made = {**case, **more, "args": args, "trainer": trainer}
            cases.append({**made, "name": f"{name} {trainer}"})
    args = {**SAVES, "output_dir": str(directory / "llama-zinf"), "learning_rate": 0.01}
    resumed = {**CASES["llama"], "args": args, "trainer": "zinf", "zinf": NVME}
    cases.append({**resumed, "name": "resumed", "resume": f"{args['output_dir']}/checkpoint-3"})
    return start(cases, request.param, directory), directory


@pytest.mark.parametrize("name", list(CASES))
def test_logs_and_files_are_those_of_the_stock_trainer(done: tuple[Ranks, Path], name: str) -> None:
    ranks, _ = done
    assert ranks.code == 0, ranks.output
    stock, zinf = ranks.results[f"{name} stock"], ranks.results[f"{name} zinf"]
    assert len(zinf["log"]) == len(stock["log"]) > 2
    for ours, theirs in zip(zinf["log"], stock["log"]):
        for key in {"loss", "grad_norm", "learning_rate", "eval_loss"} & theirs.keys():
            assert ours[key] == pytest.approx(theirs[key], rel=1e-5), (key, ours, theirs)
    assert sorted(zinf["files"]) == sorted(stock["files"])
    for step, files in zinf["files"].items():
        assert sorted({*files} - {"zinf.json"}) == stock["files"][step]
    if zinf["best"] is not None:
        assert zinf["best"].split("/")[-1] == stock["best"].split("/")[-1]


def test_a_saved_adapter_is_read_by_peft(done: tuple[Ranks, Path]) -> None:
    import peft  # noqa: PLC0415 - slow, and only here

    _, directory = done
    rows = torch.stack([Text(4)[index]["input_ids"] for index in range(2)])
    found = []
    for trainer in ("stock", "zinf"):
        path = directory / f"llama-{trainer}" / "checkpoint-6"
        model = peft.PeftModel.from_pretrained(MODELS["llama"](), path)
        with torch.no_grad():
            found.append(model(input_ids=rows).logits)
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-5)
    base = MODELS["llama"]()(input_ids=rows).logits
    assert not torch.allclose(found[1], base, rtol=1e-3, atol=1e-3)


def test_a_training_continues_with_the_same_bits(done: tuple[Ranks, Path]) -> None:
    results = done[0].results
    whole, resumed = results["llama zinf"], results["resumed"]
    assert resumed["digest"] == whole["digest"]
    assert resumed["log"][-2]["step"] == 6


def test_saving_an_adapter_does_not_copy_the_model(done: tuple[Ranks, Path]) -> None:
    stock, zinf = (done[0].results[f"llama {trainer}"] for trainer in ("stock", "zinf"))
    assert zinf["saved"] == stock["saved"] == ["adapter_config.json", "adapter_model.safetensors"]
