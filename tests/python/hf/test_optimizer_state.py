# SPDX-License-Identifier: Apache-2.0
"""The optimizer state of a stock Trainer's checkpoint continues in zinf.

Goal: after the checkpoint five steps in zinf have the losses of five steps of torch, within 1e-6.
Method: a stock Trainer saves; a loop over the same batches goes on from its files, in zinf and not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import models
import pytest
import torch
import transformers
import zinf

LR = 1e-3


def train_stock(out: Path) -> Path:
    """Make five steps by the stock Trainer. Return the checkpoint."""
    arguments = transformers.TrainingArguments(
        output_dir=str(out),
        max_steps=5,
        save_steps=5,
        per_device_train_batch_size=2,
        learning_rate=LR,
        lr_scheduler_type="constant",
        weight_decay=0.1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(
        model=models.gpt2(), args=arguments, train_dataset=models.Text(16)
    )
    trainer.train()
    return out / "checkpoint-5"


def groups_of(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Return the groups of the stock Trainer: decayed parameters first."""
    names = transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(output_dir="unused", use_cpu=True),
    ).get_decay_parameter_names(model)
    named = list(model.named_parameters())
    return [
        {"params": [p for n, p in named if n in names], "weight_decay": 0.1},
        {"params": [p for n, p in named if n not in names], "weight_decay": 0.0},
    ]


def go_on(model: Any, optimizer: Any) -> list[float]:
    data = models.Text(10, first=100)
    losses = []
    for step in range(5):
        rows = [data[2 * step + i] for i in range(2)]
        batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("place", ["none", "nvme"])
def test_of_a_stock_checkpoint_continues(daemon: str, tmp_path: Path, place: str) -> None:
    checkpoint = train_stock(tmp_path / "stock")
    stock = transformers.GPT2LMHeadModel.from_pretrained(checkpoint)
    theirs = torch.optim.AdamW(groups_of(stock), lr=LR)
    theirs.load_state_dict(torch.load(checkpoint / "optimizer.pt", weights_only=True))
    wanted = go_on(stock.train(), theirs)

    model = transformers.GPT2LMHeadModel.from_pretrained(checkpoint).train()
    optimizer = torch.optim.AdamW(groups_of(model), lr=LR)
    model, ours = zinf.prepare(
        model,
        optimizer,
        socket_path=daemon,
        job=f"stock-{place}",
        rank=0,
        world_size=1,
        offload_optimizer=place,
        offload_param=place,
    )
    engine = zinf.engine_of(model)
    try:
        ours.load_state_dict(torch.load(checkpoint / "optimizer.pt", weights_only=True))
        found = go_on(model, ours)
        engine.last_stats()
        assert engine.session.update_count == 10
    finally:
        engine.close(delete_job=True)
    for mine, other in zip(found, wanted):
        assert abs(mine - other) <= 1e-6 * abs(other)
