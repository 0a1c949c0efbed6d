# SPDX-License-Identifier: Apache-2.0
"""One rank of test_equality.py: trains small GPT-2s by torch's DDP and AdamW, and by zinf.

usage: equality_worker.py SPEC, a JSON file: {"cases": [{"strategy": ..., ...}], "out": FILE}.
Rank 0 writes for each case {"zinf": run, "base": run, "f32": run, "bf16": run or null}; a run is
{"losses": [...], "norms": [...]}, of rank 0. "base" is zinf with another strategy and place:
in memory without sharding, or sharded on NVMe.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import tempfile
from typing import Any

import models
import torch
import torch.distributed as dist
import zinf

RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))
STEPS = 50
MICRO = 2  # sequences of a micro-batch


def make(dtype: str, checkpointing: bool, tied: bool) -> Any:
    model = models.gpt2(tie_word_embeddings=tied)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.to(getattr(torch, dtype)).train()


def optimizer_of(model: Any) -> Any:
    return torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)


def batches(accumulation: int) -> Any:
    """Micro-batches of this rank, step by step."""
    data = models.Text(10**6)
    data.count = len(data.tokens) // models.LENGTH - 1
    at = RANK * MICRO
    for _ in range(STEPS):
        step = []
        for _ in range(accumulation):
            rows = [data[(at + i) % data.count]["input_ids"] for i in range(MICRO)]
            step.append(torch.stack(rows))
            at += WORLD * MICRO
        yield step


def train(model: Any, optimizer: Any, accumulation: int, no_sync: Any) -> dict[str, list[float]]:
    run: dict[str, list[float]] = {"losses": [], "norms": []}
    for step in batches(accumulation):
        loss_sum = 0.0
        for number, ids in enumerate(step):
            is_last = number == accumulation - 1
            with contextlib.nullcontext() if is_last else no_sync():
                loss = model(input_ids=ids, labels=ids).loss
                (loss / accumulation).backward()
            loss_sum += float(loss.detach())
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        run["losses"].append(loss_sum / accumulation)
        run["norms"].append(float(norm))
    return run


@functools.lru_cache(None)
def by_torch(dtype: str, accumulation: int, checkpointing: bool, tied: bool) -> dict[str, Any]:
    model = torch.nn.parallel.DistributedDataParallel(make(dtype, checkpointing, tied))
    return train(model, optimizer_of(model), accumulation, model.no_sync)


@functools.lru_cache(None)
def by_zinf(place: tuple[str, str], dtype: str, how: tuple[int, bool, bool]) -> dict[str, Any]:
    strategy, offload = place
    accumulation, checkpointing, tied = how
    model = make(dtype, checkpointing, tied)
    model, optimizer = zinf.prepare(
        model,
        optimizer_of(model),
        job=f"equal-{strategy}-{offload}-{dtype}-{accumulation}-{checkpointing:d}-{tied:d}",
        strategy=strategy,
        offload_param=offload,
        offload_optimizer=offload,
        gradient_accumulation_steps=accumulation,
    )
    engine = zinf.engine_of(model)
    assert engine is not None
    try:
        return train(model, optimizer, accumulation, contextlib.nullcontext)
    finally:
        if RANK:
            engine.close()
        dist.barrier()
        if not RANK:
            engine.close(delete_job=True)
        dist.barrier()


def compare(case: dict[str, Any]) -> dict[str, Any]:
    how = (case["accumulation"], case["checkpointing"], case["tied"])
    dtype, place = case["dtype"], (case["strategy"], case["offload"])
    base = ("ddp", "none") if place != ("ddp", "none") else ("zero3", "nvme")
    return {
        "zinf": by_zinf(place, dtype, how),
        "base": by_zinf(base, dtype, how),
        "f32": by_torch("float32", *how),
        "bf16": by_torch("bfloat16", *how) if dtype == "bfloat16" else None,
    }


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        spec = json.load(file)
    torch.set_num_threads(1)
    if WORLD == 1:
        directory = tempfile.mkdtemp()
        dist.init_process_group("gloo", f"file://{directory}/store", rank=0, world_size=1)
    else:
        dist.init_process_group("gloo")
    results = [compare(case) for case in spec["cases"]]
    if RANK == 0:
        with open(spec["out"], "w", encoding="utf-8") as file:
            json.dump(results, file)
    dist.destroy_process_group()


main()
