# SPDX-License-Identifier: Apache-2.0
"""A script of DeepSpeed: deepspeed_script.py SPEC.json.

Tests run it as it is, and with its line `import deepspeed` changed to `import zinf as deepspeed`.
SPEC: out; model; config: DeepSpeed's; steps; optimizer: of the script, else the file's; save: a
directory, where the middle of the run is saved; load: a directory to begin with; only_weights;
has_data: batches of the engine's loader.
"""

from __future__ import annotations

import json
import os
import sys

import deepspeed
import torch
import transformers.models.gpt2.modeling_gpt2  # noqa: F401 - it does not load inside zero.Init

sys.path.insert(0, os.environ["MODELS"])

from models import MODELS, Text

deepspeed.init_distributed()
with open(sys.argv[1], encoding="utf-8") as file:
    spec = json.load(file)
with deepspeed.zero.Init(
    config_dict_or_path=spec["config"], enabled=spec.get("is_deferred", False)
):
    model = MODELS[spec["model"]]()
optimizer = None
if spec.get("optimizer"):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
data = Text(4096)
engine, optimizer, loader, schedule = deepspeed.initialize(
    model=model,
    optimizer=optimizer,
    model_parameters=model.parameters(),
    training_data=data if spec.get("has_data") else None,
    config=spec["config"],
)
rank, world_size = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
micro = engine.train_micro_batch_size_per_gpu()
count = engine.gradient_accumulation_steps()
if "load" in spec:
    path, client = engine.load_checkpoint(
        spec["load"], load_optimizer_states=not spec.get("only_weights")
    )
    assert path is not None
    assert client["note"] == "from the script"


def batches():
    if loader is not None:
        while True:
            yield from loader
    number = engine.global_steps * count
    while True:
        first = (number * world_size + rank) * micro
        rows = [data[index % len(data)] for index in range(first, first + micro)]
        yield {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        number += 1


source = batches()
log = []
while engine.global_steps < spec["steps"]:
    total = 0.0
    for _ in range(count):
        lr = engine.get_lr()[0]
        loss = engine(**next(source)).loss
        total += engine.backward(loss).item()
        engine.step()
    total = torch.tensor(total)
    deepspeed.comm.all_reduce(total)
    norm = engine.get_global_grad_norm()
    log.append([total.item() / world_size, None if norm is None else float(norm), float(lr)])
    if "save" in spec and engine.global_steps == spec["steps"] // 2:
        engine.save_checkpoint(spec["save"], client_state={"note": "from the script"})
with deepspeed.zero.GatheredParameters(list(model.parameters())):
    total = sum(p.detach().double().sum().item() for p in model.parameters())
if rank == 0:
    with open(spec["out"], "w", encoding="utf-8") as file:
        json.dump({"log": log, "sum": total}, file)
deepspeed.comm.barrier()
