# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415
"""A rank of a test: one script of FSDP2, run with torch's fully_shard and with zinf's.

fsdp_worker.py SPEC.json. SPEC: out; cases: a list of name; kind: "stock", "zinf" or "plain" (torch
without sharding, one rank); model, model_args: models.py; lora; checkpointing: use_reentrant;
bf16; accumulation; lengths: of the batches; compile: "model", or "inner" (a part of each block);
unused; nested.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(__file__))

import torch
import torch.distributed as dist
from models import MODELS, Text
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp import fully_shard as stock_shard

STEPS = 10
NVME = {"offload_param": "nvme", "offload_optimizer": "nvme", "param_budget_bytes": "64M"}


class Unused(torch.nn.Module):
    """A model with a layer that takes no part in the loss."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.unused = torch.nn.Linear(8, 8)

    def forward(self, **inputs: Any) -> Any:
        return self.model(**inputs)


def build(case: dict[str, Any]) -> Any:
    model: Any = MODELS[case.get("model", "gpt2")](**case.get("model_args", {}))
    if case.get("lora"):
        import peft

        torch.manual_seed(7)
        targets = {"gpt2": ["c_attn"], "llama": ["q_proj", "v_proj", "down_proj"]}
        model = peft.get_peft_model(
            model,
            peft.LoraConfig(
                r=4,
                lora_alpha=8,
                lora_dropout=0.0,
                init_lora_weights="gaussian",
                target_modules=targets[case["model"]],
                modules_to_save=case.get("save"),
                fan_in_fan_out=case["model"] == "gpt2",
                task_type="CAUSAL_LM",
            ),
        )
    if "checkpointing" in case:
        model.gradient_checkpointing_enable({"use_reentrant": case["checkpointing"]})
        if case.get("lora") and case["checkpointing"]:
            model.enable_input_require_grads()
    return Unused(model) if case.get("unused") else model


def blocks_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    kinds = ("GPT2Block", "LlamaDecoderLayer")
    names = [(module, type(module).__name__.removeprefix("FSDP")) for module in model.modules()]
    return [module for module, name in names if name in kinds]


def shard(model: Any, case: dict[str, Any]) -> None:
    """Call fully_shard() as scripts do. The policy is torch's in both."""
    options: dict[str, Any] = {}
    if case.get("bf16"):
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    if case["kind"] == "stock":
        call: Any = stock_shard
        options["mesh"] = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    elif case["kind"] == "zinf":
        import zinf

        call = zinf.fully_shard
        options["mesh"] = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    else:
        return
    for block in blocks_of(model):
        if case.get("nested"):
            call(block.mlp, **options)
        call(block, **options)
    if case.get("bf16"):
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, output_dtype=torch.float32)
    if case["kind"] == "zinf":
        options.update(NVME, find_unused_parameters=case.get("unused", False))
    call(model, **options)


def train(case: dict[str, Any]) -> dict[str, Any]:
    kind, rank, world = case["kind"], dist.get_rank(), dist.get_world_size()
    model = build(case)
    shard(model, case)
    trained = [item for item in model.parameters() if item.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    data = Text(200)
    called: Any = model
    if case.get("compile") == "model":
        called = torch.compile(model, backend="aot_eager")
    elif case.get("compile") == "inner":
        for block in blocks_of(model):
            block.mlp.compile(backend="aot_eager")
    count = case.get("accumulation", 1)
    lengths = case.get("lengths", [32])
    log: list[list[float]] = []
    for step in range(STEPS):
        total = 0.0
        for micro in range(count):
            if count > 1 and kind != "plain":
                model.set_requires_gradient_sync(micro == count - 1)
            first = ((step * count + micro) * world + rank) * 2 % 190
            rows = torch.stack([data[first + row]["input_ids"] for row in range(2)])
            rows = rows[:, : lengths[step % len(lengths)]]
            loss = called(input_ids=rows, labels=rows).loss / count
            loss.backward()
            total += loss.item()
        norm: Any = torch.nn.utils.clip_grad_norm_(trained, 0.5)
        norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        mean = torch.tensor(total)
        dist.all_reduce(mean)
        log.append([mean.item() / world, float(norm), schedule.get_last_lr()[0]])
    result: dict[str, Any] = {"log": log, "class": type(optimizer).__mro__[1].__module__}
    if kind == "zinf":
        import zinf

        engine = zinf.engine_of(model)
        assert engine is not None
        result["units"] = len(engine.units)
        result["dtypes"] = sorted({str(item.dtype) for item in model.parameters()})
        if case.get("state"):
            result["state"] = check_state(model)
        engine.close()
    return result


def check_state(model: Any) -> list[str]:
    """Return the classes of values that DCP's state_dict functions give for a sharded model."""
    from torch.distributed.checkpoint import state_dict as dcp

    options = dcp.StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = dcp.get_model_state_dict(model, options=options)
    own = model.state_dict()
    same = [torch.equal(state[name], own[name]) for name in state]
    assert all(same)
    dcp.set_model_state_dict(model, {name: value * 2 for name, value in own.items()})
    assert all(torch.equal(value, 2 * own[name]) for name, value in model.state_dict().items())
    return sorted({type(value).__name__ for value in state.values()})


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    dist.init_process_group("gloo")
    results: dict[str, Any] = {}
    for case in spec["cases"]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                results[case["name"]] = train(case)
            except Exception as error:
                if case.get("compile") != "inner":
                    raise
                results[case["name"]] = {"error": f"{type(error).__name__}: {error}"}
        results[case["name"]]["warnings"] = [str(one.message) for one in caught]
        gc.collect()
    if dist.get_rank() == 0:
        with open(spec["out"], "w", encoding="utf-8") as file:
            json.dump(results, file)
    dist.destroy_process_group()


main()
