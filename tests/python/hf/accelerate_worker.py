# SPDX-License-Identifier: Apache-2.0
"""A rank of a test: Accelerate's loop, stock or over zinf. accelerate_worker.py SPEC.json.

SPEC: out; kind: "stock", "zinf", or "plain" (zinf.prepare() with the stock Accelerator); steps;
accumulation; bf16; fp16: arguments of GradScaler; save and load: {step: directory}; total_limit and
project: automatic names.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(__file__))

import accelerate
import torch
from models import Text, gpt2

with open(sys.argv[1], encoding="utf-8") as file:
    spec: dict[str, Any] = json.load(file)
kind = spec["kind"]
settings = {"strategy": "zero3", "offload_param": "nvme", "offload_optimizer": "nvme"}
more: dict[str, Any] = {"cpu": True, "gradient_accumulation_steps": spec["accumulation"]}
if spec.get("bf16"):
    more["mixed_precision"] = "bf16"
if "fp16" in spec:
    more["mixed_precision"] = "fp16"
    more["kwargs_handlers"] = [accelerate.utils.GradScalerKwargs(**spec["fp16"])]
if "project" in spec:
    more["project_config"] = accelerate.utils.ProjectConfiguration(
        project_dir=spec["project"],
        automatic_checkpoint_naming=True,
        total_limit=spec["total_limit"],
    )
if kind == "zinf":
    import zinf.accelerate

    accelerator: Any = zinf.accelerate.Accelerator(zinf=settings, **more)
else:
    accelerator = accelerate.Accelerator(**more)
    if "fp16" in spec:  # which it has on devices only
        accelerator.native_amp = True
        accelerator.scaler = torch.amp.GradScaler("cpu", **spec["fp16"])
model = gpt2(dropout=spec.get("dropout", 0.0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
if kind == "plain":
    import zinf

    model, optimizer = zinf.prepare(
        model, optimizer, settings, job="plain", gradient_accumulation_steps=spec["accumulation"]
    )
# 11 batches over all ranks: the last step has fewer micro-batches.
loader = torch.utils.data.DataLoader(Text(22), batch_size=2)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
log: list[Any] = []
updates = 0
if "0" in spec.get("load", {}):
    accelerator.load_state(spec["load"]["0"])
while updates < spec["steps"]:
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            norm = (
                accelerator.clip_grad_norm_(model.parameters(), 0.5)
                if accelerator.sync_gradients
                else None
            )
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach()).mean().item()
        if norm is None:
            continue
        updates += 1
        log.append([updates, mean, float(norm), optimizer.param_groups[0]["lr"]])
        if "fp16" in spec:
            log[-1] += [accelerator.scaler.get_scale(), accelerator.optimizer_step_was_skipped]
        if "project" in spec:
            accelerator.save_state()
        if str(updates) in spec.get("save", {}):
            accelerator.save_state(spec["save"][str(updates)])
        if str(updates) in spec.get("load", {}):
            accelerator.load_state(spec["load"].pop(str(updates)))
        if updates == spec["steps"]:
            break
state = accelerator.get_state_dict(model)
total = sum(value.double().sum().item() for value in state.values())
snapshots = []
if kind == "zinf":
    from zinf import admin

    session = accelerator.engine.session
    job, path = session.job.removesuffix(".2"), session.config.socket_path
    for name in (job, f"{job}.2"):
        snapshots += [found["name"] for found in admin.snapshots(name, socket_path=path)]
if accelerator.is_main_process:
    with open(spec["out"], "w", encoding="utf-8") as file:
        json.dump(
            {"log": log, "sum": total, "class": type(model).__name__, "snapshots": snapshots}, file
        )
accelerator.wait_for_everyone()
if torch.distributed.is_initialized():
    torch.distributed.destroy_process_group()
if kind == "plain":
    zinf.engine_of(model).close()
