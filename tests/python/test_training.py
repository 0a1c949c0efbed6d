# SPDX-License-Identifier: Apache-2.0
"""A model trained in zinf and by torch alone.

Goal: losses and norms of plain loops are within 1e-5 of torch's, wherever parameters lie, and
strategies give the same bits. Method: a small transformer, ten steps, both sides.
"""

from __future__ import annotations

import contextlib
import copy
import os
import unittest
from collections.abc import Iterator
from typing import Any

try:
    import torch
except ImportError as error:  # the package itself needs no torch
    raise unittest.SkipTest("torch is not installed") from error

import house
import torch_models as models
import zinf
from torch import nn

CLOSE = 1e-5


@contextlib.contextmanager
def prepared(
    module: nn.Module, optimizer: Any = None, **settings: Any
) -> Iterator[tuple[nn.Module, Any, Any]]:
    """Prepare a model in a job of its own, which is deleted at the end."""
    optimizer = models.adamw(module) if optimizer is None else optimizer
    blocks = settings.pop("blocks", None)
    module, optimizer = zinf.prepare(module, optimizer, house.config(**settings), blocks=blocks)
    engine = zinf.engine_of(module)
    try:
        yield module, optimizer, engine
    finally:
        engine.close(delete_job=True)


class TrainingCase(unittest.TestCase):
    def assert_close(self, ours: list[float], torchs: list[float]) -> None:
        self.assertEqual(len(ours), len(torchs))
        for mine, other in zip(ours, torchs):
            self.assertLessEqual(abs(mine - other), CLOSE * abs(other))


class Losses(TrainingCase):
    def test_equal_torch_in_each_place_with_the_same_bits(self) -> None:
        places: tuple[dict[str, Any], ...] = (
            {},
            models.NVME,
            {"strategy": "zero3", "param_budget_bytes": "256K", **models.NVME},
            {"strategy": "zero2"},
        )
        for checkpointing in (None, False, True):
            plain = models.model(checkpointing=checkpointing)
            torchs = models.train(plain, models.adamw(plain), clip=1.0)
            first: Any = None
            for settings in places:
                with (
                    self.subTest(checkpointing=checkpointing, **settings),
                    prepared(models.model(checkpointing=checkpointing), **settings) as (
                        module,
                        optimizer,
                        _,
                    ),
                ):
                    ours = models.train(module, optimizer, clip=1.0)
                    self.assert_close(ours, torchs)
                    found = (ours, models.values(module))
                    first = first or found
                    self.assertEqual(ours, first[0])
                    self.assertTrue(models.is_same(found[1], first[1]))

    def test_of_accumulation_equal_torch(self) -> None:
        plain = models.model()
        torchs = models.train(plain, models.adamw(plain), accumulation=4, clip=1.0)
        for settings in ({}, {"strategy": "zero2", **models.NVME}):
            for has_no_sync in (False, True):
                with (
                    self.subTest(has_no_sync=has_no_sync, **settings),
                    prepared(
                        models.model(checkpointing=False), gradient_accumulation_steps=4, **settings
                    ) as (module, optimizer, _),
                ):
                    ours = models.train(
                        module, optimizer, accumulation=4, clip=1.0, has_no_sync=has_no_sync
                    )
                    self.assert_close(ours, torchs)

    def test_of_each_optimizer_equal_torch(self) -> None:
        cases: tuple[tuple[str, dict[str, Any]], ...] = (
            ("AdamW", {"lr": 2e-3, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
            ("Adam", {"lr": 1e-3, "weight_decay": 0.1}),
            ("SGD", {"lr": 1e-2}),
            ("SGD", {"lr": 1e-2, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
            ("SGD", {"lr": 1e-2, "momentum": 0.9, "nesterov": True}),
            ("Adagrad", {"lr": 1e-2, "lr_decay": 0.1, "weight_decay": 0.01}),
        )
        for name, options in cases:
            with self.subTest(name, **options):
                plain = models.model(count=1)
                stock = getattr(torch.optim, name)(plain.parameters(), **options)
                torchs = models.train(plain, stock)
                module = models.model(count=1)
                ours = getattr(zinf.optim, name)(module.parameters(), **options)
                with prepared(module, ours) as (_, optimizer, _):
                    self.assertIs(optimizer, ours)
                    self.assert_close(models.train(module, optimizer), torchs)

    def test_of_lion_equal_its_definition(self) -> None:
        plain = models.model(count=1)
        torchs = models.train(plain, PlainLion(plain.parameters(), 1e-4, (0.9, 0.99), 0.1))
        module = models.model(count=1)
        lion = zinf.optim.Lion(module.parameters(), weight_decay=0.1)
        with prepared(module, lion):
            self.assert_close(models.train(module, lion), torchs)

    def test_of_groups_and_a_schedule_equal_torch(self) -> None:
        def parts(module: nn.Module) -> Any:
            decay = [p for p in module.parameters() if p.dim() > 1]
            others = [p for p in module.parameters() if p.dim() <= 1]
            groups = [{"params": decay}, {"params": others, "weight_decay": 0.0, "eps": 1e-5}]
            optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1)
            return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        def run(module: nn.Module, optimizer: Any, schedule: Any) -> list[float]:
            losses = []
            for _ in range(10):
                losses += models.train(module, optimizer, steps=1)
                schedule.step()
            return losses

        plain = models.model()
        torchs = run(plain, *parts(plain))
        module = models.model()
        former, schedule = parts(module)  # the schedule is made before prepare()
        with prepared(module, former) as (_, optimizer, _):
            self.assertIs(optimizer.param_groups, former.param_groups)
            self.assert_close(run(module, optimizer, schedule), torchs)
            # accelerate.prepare() loads an optimizer's own state_dict() into it.
            groups = optimizer.param_groups
            state = optimizer.state_dict()
            self.assertEqual(state["state"], {})
            optimizer.load_state_dict(copy.deepcopy(state))
            self.assertIs(optimizer.param_groups, groups)
            schedule.step()
            self.assertEqual(groups[0]["lr"], former.param_groups[0]["lr"])

    def test_of_a_schedule_of_betas_equal_torch(self) -> None:
        def run(module: nn.Module, optimizer: Any) -> list[float]:
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=12)
            losses = []
            for number in range(10):
                loss = models.loss_of(module, models.batch(number))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                losses.append(float(loss))
            return losses

        for kind in (torch.optim.AdamW, torch.optim.Adam):
            plain = models.model()
            torchs = run(plain, kind(plain.parameters()))
            module = models.model()
            with (
                self.subTest(kind=kind.__name__),
                prepared(module, kind(module.parameters())) as (module, optimizer, _),
            ):
                self.assert_close(run(module, optimizer), torchs)

    def test_of_a_closure_equal_torch(self) -> None:
        def run(module: nn.Module, optimizer: Any) -> list[float]:
            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = models.loss_of(module, models.batch(0))
                loss.backward()
                return loss

            return [optimizer.step(closure).item() for _ in range(4)]

        plain = models.model(count=1)
        torchs = run(plain, models.adamw(plain))
        with prepared(models.model(count=1)) as (module, optimizer, _):
            self.assert_close(run(module, optimizer), torchs)

    def test_of_bfloat16_follow_float32(self) -> None:
        plain = models.model(count=1)
        torchs = models.train(plain, models.adamw(plain))
        with prepared(models.model(count=1), param_dtype="bfloat16") as (module, optimizer, _):
            self.assertEqual(module.norm.weight.dtype, torch.bfloat16)
            ours = models.train(module, optimizer)
        for mine, other in zip(ours, torchs):
            self.assertLessEqual(abs(mine - other), 0.05 * other)


class EarlyUpdates(TrainingCase):
    def test_have_the_bits_of_late_ones(self) -> None:
        found = []
        for settings in ({}, {"update_early": True}):
            for accumulation in (1, 2):
                with (
                    self.subTest(accumulation=accumulation, **settings),
                    prepared(
                        models.model(),
                        strategy="zero3",
                        gradient_accumulation_steps=accumulation,
                        **models.NVME,
                        **settings,
                    ) as (module, optimizer, _),
                ):
                    ours = models.train(module, optimizer, steps=5, accumulation=accumulation)
                    optimizer.param_groups[0]["lr"] /= 2  # as a scheduler between steps
                    ours += models.train(module, optimizer, steps=5, accumulation=accumulation)
                    found.append((ours, models.values(module)))
        for late, early in ((found[0], found[2]), (found[1], found[3])):
            self.assertEqual(late[0], early[0])
            self.assertTrue(models.is_same(late[1], early[1]))

    def test_refuse_a_norm_and_other_hyperparameters(self) -> None:
        with prepared(models.model(), update_early=True, **models.NVME) as (module, optimizer, _):
            models.loss_of(module, models.batch(0)).backward()
            with self.assertRaisesRegex(zinf.ZinfError, "update_early=False to clip"):
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            rate = optimizer.param_groups[0]["lr"]
            optimizer.param_groups[0]["lr"] = rate / 2
            with self.assertRaisesRegex(zinf.ZinfError, "have changed between backward and"):
                optimizer.step()
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            models.loss_of(module, models.batch(1)).backward()
            with self.assertRaisesRegex(zinf.ZinfError, "update_early"):
                optimizer.zero_grad()


class PlainLion(torch.optim.Optimizer):
    """arXiv:2302.06675, algorithm 2."""

    def __init__(self, params: Any, lr: float, betas: Any, decay: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                momentum = state.setdefault("momentum", torch.zeros_like(p))
                update = (momentum * beta1 + p.grad * (1 - beta1)).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])
                momentum.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Ranks(TrainingCase):
    def test_two_equal_one_with_both_batches(self) -> None:
        plain = models.model(checkpointing=False)
        torchs = models.train(plain, models.adamw(plain), clip=1.0, ranks=(0, 1))
        for strategy in ("ddp", "zero3"):
            with self.subTest(strategy):
                first, second = (sent[0] for sent in models.run_ranks(2, train_rank, strategy))
                losses = [(a + b) / 2 for a, b in zip(first[::2], second[::2])]
                self.assertEqual(first[1::2], second[1::2])  # the norm is global
                self.assert_close([x for pair in zip(losses, first[1::2]) for x in pair], torchs)

    def test_killed_and_started_again_has_the_same_bits(self) -> None:
        whole = models.run_ranks(1, train_with_dropout, 8)[0]
        environment = house.rank_environment(0, 1, house.job_name())
        killed = models.Process(environment, train_with_dropout, 8)
        for step, _ in killed.values():
            if step == 4:
                killed.kill()
                break
        self.assertEqual(killed.finish(), -9)
        again = models.Process(environment, train_with_dropout, 8)
        resumed = list(again.values())
        self.assertEqual(again.finish(), 0)
        self.assertIn(len(resumed), (5, 6))  # the steps that were not committed, and the values
        self.assertEqual(resumed[:-1], whole[-len(resumed) : -1])
        self.assertTrue(models.is_same(resumed[-1], whole[-1]))


def train_rank(send: Any, strategy: str) -> None:
    """Train as one of two ranks. Sends losses and norms."""
    module = models.model(checkpointing=False)
    config = zinf.Config.load(None, strategy=strategy, timeout=30, **models.NVME)
    _, optimizer = zinf.prepare(module, models.adamw(module), config)
    numbers = models.train(module, optimizer, clip=1.0, ranks=(int(os.environ["RANK"]),))
    zinf.engine_of(module).close()
    send(numbers)


def train_with_dropout(send: Any, steps: int) -> None:
    """Train with dropout; the blob has the random state. Sends losses, at last the values."""
    torch.manual_seed(5)
    module = models.Transformer(count=2, dropout=0.2)
    config = zinf.Config.load(None, timeout=30, takeover=True, **models.NVME)
    _, optimizer = zinf.prepare(module, models.adamw(module), config)
    engine = zinf.engine_of(module)
    start = engine.committed_step
    if start:
        torch.set_rng_state(torch.frombuffer(bytearray(engine.blob()), dtype=torch.uint8))
    engine.blob_source = lambda: bytes(torch.get_rng_state().tolist())
    for step in range(start, steps):
        loss = models.loss_of(module, models.batch(step))
        loss.backward()
        optimizer.step()
        send((step + 1, loss.item()))
    send(models.values(module))
    engine.close()


if __name__ == "__main__":
    unittest.main()
