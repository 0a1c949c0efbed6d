# SPDX-License-Identifier: Apache-2.0
"""A rank of a test: checkpoints of DCP pass between FSDP2 or DDP and zinf.

dcp_worker.py SPEC.json. SPEC: out; cases: one case with directory, job, optimizer and wrapper.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, os.path.dirname(__file__))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import zinf
import zinf.checkpoint
from models import Text, gpt2
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

NVME = {"strategy": "zero3", "offload_param": "nvme", "offload_optimizer": "nvme"}
OPTIMIZERS: dict[str, Any] = {
    "adamw": lambda items: torch.optim.AdamW(items, lr=2e-3, weight_decay=0.1),
    "sgd": lambda items: torch.optim.SGD(items, lr=1e-2, momentum=0.9),
}

with open(sys.argv[1], encoding="utf-8") as file:
    spec = json.load(file)
case = spec["cases"][0]
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()


def stock(seed: int) -> tuple[Any, Any]:
    model = gpt2(seed)
    if case["wrapper"] == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
        return wrapped, OPTIMIZERS[case["optimizer"]](wrapped.parameters())
    mesh = dist.init_device_mesh("cpu", (world,))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, OPTIMIZERS[case["optimizer"]](model.parameters())


def ours(seed: int, name: str, **more: Any) -> tuple[Any, Any]:
    model = gpt2(seed)
    optimizer = OPTIMIZERS[case["optimizer"]](model.parameters())
    return zinf.prepare(model, optimizer, NVME, job=f"{case['job']}-{name}", **more)


def train(model: Any, optimizer: Any, first: int, count: int) -> list[float]:
    data = Text(200)
    losses = []
    for step in range(first, first + count):
        at = (step * world + rank) * 2
        rows = torch.stack([data[at + row]["input_ids"] for row in range(2)])
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
    return losses


def torch_state(model: Any, optimizer: Any) -> dict[str, Any]:
    values, state = get_state_dict(model, optimizer)
    return {"model": values, "optim": state}


def torch_load(model: Any, optimizer: Any, path: str) -> None:
    state = torch_state(model, optimizer)
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )


results: dict[str, Any] = {}
directory = case["directory"]
model, optimizer = stock(1)
train(model, optimizer, 0, 3)
optimizer.param_groups[0]["lr"] = 1e-3
dcp.save(torch_state(model, optimizer), checkpoint_id=f"{directory}/stock")
results["stock goes on"] = train(model, optimizer, 3, 4)

model, optimizer = ours(2, "reads")
state = zinf.checkpoint.state_dict(model, optimizer)
dcp.load(state, storage_reader=zinf.checkpoint.Reader(f"{directory}/stock"))
results["zinf reads"] = train(model, optimizer, 3, 4)
results["lr"] = optimizer.param_groups[0]["lr"]
dcp.save(
    zinf.checkpoint.state_dict(model, optimizer),
    storage_writer=zinf.checkpoint.Writer(f"{directory}/zinf", snapshot_of=model),
)
unit_file = "__0_1_0.distcp"
results["files"] = sorted(os.listdir(f"{directory}/zinf"))
future: Any = dcp.async_save(
    zinf.checkpoint.state_dict(model, optimizer),
    storage_writer=zinf.checkpoint.Writer(f"{directory}/async"),
    process_group=dist.new_group(),  # train() uses the other one meanwhile
)
results["zinf goes on"] = train(model, optimizer, 7, 4)
future.result()

model, optimizer = stock(3)
torch_load(model, optimizer, f"{directory}/zinf")
results["stock reads"] = train(model, optimizer, 7, 4)

model, optimizer = ours(4, "again")
state = zinf.checkpoint.state_dict(model, optimizer)
dcp.load(state, storage_reader=zinf.checkpoint.Reader(f"{directory}/zinf"))
results["zinf reads its own"] = train(model, optimizer, 7, 4)

model, optimizer = ours(5, "snap", snapshot=zinf.checkpoint.snapshot_in(f"{directory}/zinf"))
optimizer.param_groups[0]["lr"] = 1e-3  # a snapshot has no groups
results["snapshot"] = train(model, optimizer, 7, 4)

model, optimizer = ours(6, "async")
state = zinf.checkpoint.state_dict(model, optimizer)
dcp.load(state, storage_reader=zinf.checkpoint.Reader(f"{directory}/async"))
results["async"] = train(model, optimizer, 7, 4)

# A damaged file of a unit, or of moments: every rank raises.
dist.barrier()
if rank == 0:
    last = max(name for name in os.listdir(f"{directory}/zinf") if name.endswith(".distcp"))
    os.truncate(f"{directory}/zinf/{last if case['optimizer'] == 'adamw' else unit_file}", 10)
dist.barrier()
state = zinf.checkpoint.state_dict(model, optimizer)
try:
    dcp.load(state, storage_reader=zinf.checkpoint.Reader(f"{directory}/zinf"))
    results["damaged"] = ""
except BaseException as error:  # CheckpointException derives from it
    results["damaged"] = str(error)
if rank == 0:
    with open(spec["out"], "w", encoding="utf-8") as file:
        json.dump(results, file)
dist.barrier()
dist.destroy_process_group()
