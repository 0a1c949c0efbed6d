# SPDX-License-Identifier: Apache-2.0
"""Small models, their batches, and plain loops over them, for the tests with torch."""

from __future__ import annotations

import contextlib
import os
import pickle
import traceback
from typing import Any, Callable

import house
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
import torch.utils.checkpoint
import zinf
from torch import nn

VOCAB, WIDTH = 256, 32
NVME = {"offload_optimizer": "nvme", "offload_param": "nvme"}

torch.set_num_threads(1)


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mix(self.norm1(x)).chunk(3, -1)
        weights = (query @ key.transpose(1, 2) / x.shape[-1] ** 0.5).softmax(-1)
        x = x + self.dropout(self.out(weights @ value))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm2(x)))))


class Transformer(nn.Module):
    """A language model. checkpointing: None, or use_reentrant of torch's."""

    def __init__(
        self, count: int = 3, is_tied: bool = True, checkpointing: Any = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, dropout) for _ in range(count))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        if is_tied:
            self.head.weight = self.embed.weight
        self.checkpointing = checkpointing

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            if self.checkpointing is None:
                x = block(x)
            else:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=self.checkpointing)
        return self.head(self.norm(x))


def model(**options: Any) -> Transformer:
    torch.manual_seed(1)
    return Transformer(**options)


def batch(number: int, rank: int = 0, length: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * number + rank)
    return torch.randint(0, VOCAB, (4, length), generator=generator)


def loss_of(module: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    logits = module(ids[:, :-1])
    return F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))


def adamw(module: nn.Module, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), **{"lr": 1e-3, **options})


def train(
    module: nn.Module,
    optimizer: Any,
    *,
    steps: int = 10,
    accumulation: int = 1,
    clip: float = 0.0,
    ranks: tuple[int, ...] = (0,),
    has_no_sync: bool = False,
) -> list[float]:
    """Run a plain loop. Return the loss of each step, and with `clip` each norm behind it."""
    numbers = []
    engine = zinf.engine_of(module)
    for step in range(steps):
        total = 0.0
        for micro in range(accumulation):
            quiet: Any = contextlib.nullcontext()
            if has_no_sync and micro < accumulation - 1:
                quiet = engine.no_sync()
            with quiet:
                losses = [loss_of(module, batch(step * accumulation + micro, r)) for r in ranks]
                loss = sum(losses) / len(losses) / accumulation
                loss.backward()
            total += loss.item()
        numbers.append(total)
        if clip:
            numbers.append(float(torch.nn.utils.clip_grad_norm_(module.parameters(), clip)))
        optimizer.step()
        optimizer.zero_grad()
    return numbers


def values(module: nn.Module) -> list[torch.Tensor]:
    return list(module.state_dict().values())


def is_same(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right))


class Process:
    """A forked process that runs a function. Importing torch once is enough for all."""

    def __init__(self, environment: dict[str, str], run: Callable[..., Any], *words: Any) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(writer)
            self._pipe = os.fdopen(reader, "rb")
            return
        code = 1
        try:
            os.close(reader)
            os.environ.update(environment)
            with os.fdopen(writer, "wb", 0) as pipe:
                run(lambda value: pipe.write(pickle.dumps(value)), *words)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def values(self) -> Any:
        """Yield what the process sends, until it ends."""
        while True:
            try:
                yield pickle.load(self._pipe)
            except EOFError:
                return

    def kill(self) -> None:
        os.kill(self.pid, 9)

    def finish(self) -> int:
        """Wait for the end. Return the exit status; negative: a signal."""
        self._pipe.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def run_ranks(count: int, run: Callable[..., Any], *words: Any) -> list[list[Any]]:
    """Run a function as ranks of a new job. Return what each sent; all must end well."""
    job = house.job_name()
    processes = [
        Process(house.rank_environment(rank, count, job), run, *words) for rank in range(count)
    ]
    found = [list(process.values()) for process in processes]
    codes = [process.finish() for process in processes]
    if any(codes):
        raise AssertionError(f"ranks ended with {codes}")
    return found
