# SPDX-License-Identifier: Apache-2.0
"""What models and loops may do that a plain loop does not, and what is refused.

Goal: each case gives torch's numbers, or an exception that says what to do, after which the next
step is right. Method: small models, beside torch where there is something to compare.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import importlib
import os
import time
import unittest
import warnings
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import house
import torch.utils.checkpoint
import torch_models as models
import zinf
from test_training import TrainingCase, prepared
from torch import nn
from zinf import scratch
from zinf.module import units
from zinf.module.init import is_pending


def loss_of(module: nn.Module, number: int) -> torch.Tensor:
    return models.loss_of(module, models.batch(number))


class Shared(nn.Module):
    """Blocks that are used twice, and a parameter of two blocks."""

    def __init__(self, checkpointing: Any = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(models.Block(models.WIDTH, 0.0) for _ in range(2))
        self.blocks[1].up.weight = self.blocks[0].up.weight
        self.embed = nn.Embedding(models.VOCAB, models.WIDTH)
        self.head = nn.Linear(models.WIDTH, models.VOCAB)
        self.checkpointing = checkpointing

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for _ in range(2):
            for block in self.blocks:
                if self.checkpointing is None:
                    x = block(x)
                else:
                    x = torch.utils.checkpoint.checkpoint(
                        block, x, use_reentrant=self.checkpointing
                    )
        return self.head(x)


class Adapted(nn.Module):
    """Frozen layers with trained ones beside them, as LoRA has; and wholly frozen blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))
        self.small = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(3))
        for block in self.blocks:
            block.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, block in enumerate(self.blocks):
            y = block(x)
            x = torch.tanh(y + self.small[number](x) if number < 3 else y)
        return x


class Sometimes(nn.Module):
    """A layer that is used if asked for, and an output beside the returned one."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.uses = [True, True, True]
        self.beside: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.beside = self.blocks[1](x).square().mean()
        for block, is_used in zip(self.blocks, self.uses):
            x = torch.relu(block(x)) if is_used else x
        if x.shape[0] == 7:
            raise ValueError("seven rows")
        return x


def pair(kind: Any, **options: Any) -> tuple[Any, Any]:
    """Return a model twice, with the same values."""
    torch.manual_seed(1)
    first = kind(**options)
    torch.manual_seed(1)
    return first, kind(**options)


def run_rows(module: Any, optimizer: Any) -> list[float]:
    """Run a plain loop over batches of two to six rows. Return the losses."""
    losses = []
    for step in range(5):
        x = torch.randn(2 + step, 8, generator=torch.Generator().manual_seed(step))
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


class Models(TrainingCase):
    def test_with_shared_blocks(self) -> None:
        for checkpointing in (None, False, True):
            for settings in ({}, {**models.NVME, "param_budget_bytes": "512K"}):
                plain, module = pair(Shared, checkpointing=checkpointing)
                torchs = models.train(plain, models.adamw(plain), steps=4, accumulation=2)
                with (
                    self.subTest(checkpointing=checkpointing, **settings),
                    prepared(module, gradient_accumulation_steps=2, **settings) as (
                        _,
                        optimizer,
                        engine,
                    ),
                ):
                    names = {slot.name for slot in engine.units[-1].slots}
                    self.assertIn("blocks.0.up.weight", names)  # two blocks have it
                    ours = models.train(module, optimizer, steps=4, accumulation=2)
                    self.assert_close(ours, torchs)

    def test_with_frozen_parameters(self) -> None:
        plain, module = pair(Adapted)
        torchs = run_rows(plain, models.adamw(plain))
        former = [block.weight.detach().clone() for block in module.blocks]
        for blocks in (None, ("Linear",)):
            _, module = pair(Adapted)
            with prepared(module, blocks=blocks, **models.NVME) as (_, optimizer, _):
                self.assert_close(run_rows(module, optimizer), torchs)
                found = [block.weight.detach().clone() for block in module.blocks]
                self.assertTrue(models.is_same(former, found))
                with self.assertRaisesRegex(zinf.ZinfError, "frozen"):
                    module.blocks[0].requires_grad_(True)

    def test_with_parameters_in_no_optimizer(self) -> None:
        plain, module = pair(Sometimes)
        torchs = run_rows(plain, torch.optim.SGD(plain.blocks[0].parameters(), 0.1))
        optimizer = torch.optim.SGD(module.blocks[0].parameters(), 0.1)
        with (
            self.assertWarnsRegex(UserWarning, "no group of the optimizer"),
            prepared(module, optimizer) as (_, ours, _),
        ):
            self.assert_close(run_rows(module, ours), torchs)
            self.assertIsNone(module.blocks[2].weight.grad)

    def test_with_unused_parameters(self) -> None:
        plain, module = pair(Sometimes)
        plain.uses[2] = module.uses[2] = False
        torchs = run_rows(plain, torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9))
        optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
        with prepared(module, optimizer, find_unused_parameters=True) as (_, ours, _):
            self.assert_close(run_rows(module, ours), torchs)
        _, module = pair(Sometimes)
        module.uses[2] = False
        with prepared(module) as (_, ours, _):
            module(torch.ones(2, 8)).sum().backward()
            with self.assertRaisesRegex(zinf.MissingGradient, "blocks.2.weight.*find_unused"):
                ours.step()
            with self.assertRaisesRegex(zinf.MissingGradient, "blocks.2.bias"):
                torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            ours.zero_grad()
            module.uses[2] = True
            module(torch.ones(2, 8)).sum().backward()
            ours.step()

    def test_with_an_output_beside_the_returned_one(self) -> None:
        def run(module: Any, optimizer: Any) -> list[float]:
            losses = []
            for step in range(4):
                y = module(torch.full((2, 8), 1.0 + step))
                loss = y.square().mean() + module.beside
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return losses

        plain, module = pair(Sometimes)
        torchs = run(plain, models.adamw(plain))
        with prepared(module, **models.NVME) as (_, optimizer, _):
            self.assert_close(run(module, optimizer), torchs)

    def test_with_buffers_and_empty_and_whole_number_parameters(self) -> None:
        class Mixed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = nn.BatchNorm1d(8)
                self.none = nn.Parameter(torch.zeros(0, 4))
                self.whole = nn.Parameter(torch.ones(3, dtype=torch.int64), requires_grad=False)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.norm(x) * self.whole.sum() + self.none.sum()

        plain, module = pair(Mixed)
        torchs = run_rows(plain, models.adamw(plain))
        with prepared(module) as (_, optimizer, _):
            self.assert_close(run_rows(module, optimizer), torchs)
            self.assertTrue(torch.equal(module.norm.running_mean, plain.norm.running_mean))
            self.assertEqual(set(module.state_dict()), set(plain.state_dict()))


class Loops(TrainingCase):
    def test_may_run_the_model_at_any_moment(self) -> None:
        plain = models.model()
        torchs = models.train(plain, models.adamw(plain), steps=3)
        with prepared(models.model(), **models.NVME) as (module, optimizer, _):
            ours = []
            for step in range(3):
                loss = loss_of(module, step)
                with torch.no_grad():
                    loss_of(module, 99)
                loss.backward()
                module.eval()
                loss_of(module, 98)  # its graph is dropped
                with torch.no_grad():
                    for length in range(3, 6):  # as generate()
                        module(models.batch(97, length=length))
                module.train()
                optimizer.step()
                with torch.no_grad():
                    loss_of(module, 96)
                optimizer.zero_grad()
                ours.append(loss.item())
            self.assert_close(ours, torchs)

    def test_may_run_forward_several_times_before_backward(self) -> None:
        def run(module: nn.Module, optimizer: Any) -> list[float]:
            losses = []
            for step in range(3):
                loss = loss_of(module, 2 * step) + loss_of(module, 2 * step + 1)
                optimizer.zero_grad()  # between forward and backward
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses

        plain = models.model()
        torchs = run(plain, models.adamw(plain))
        for settings in ({}, models.NVME):
            with prepared(models.model(), **settings) as (module, optimizer, _):
                self.assert_close(run(module, optimizer), torchs)

    def test_may_discard_gradients(self) -> None:
        plain = models.model()
        torchs = models.train(plain, models.adamw(plain), steps=3)
        for zero in ("optimizer", "model", "engine"):
            with prepared(models.model(), **models.NVME) as (module, optimizer, engine):
                loss_of(module, 50).backward()
                kept = loss_of(module, 0)
                if zero == "engine":
                    engine.discard()
                else:
                    (optimizer if zero == "optimizer" else module).zero_grad()
                kept.backward()
                optimizer.step()
                ours = [kept.item()]
                for step in (1, 2):
                    loss = loss_of(module, step)
                    loss.backward()
                    optimizer.step()
                    ours.append(loss.item())
                self.assert_close(ours, torchs)
                self.assertEqual(engine.committed_step, 3)

    def test_without_zero_grad_warn_once(self) -> None:
        def by_hand(module: nn.Module, _: Any) -> None:
            for item in module.parameters():
                item.grad = None

        def by_zeros(module: nn.Module, _: Any) -> None:
            for item in module.parameters():
                if item.grad is not None:
                    item.grad.zero_()

        cases: tuple[tuple[Any, int], ...] = (
            (None, 1),
            (lambda _, optimizer: optimizer.zero_grad(), 0),
            (lambda module, _: module.zero_grad(), 0),
            (by_hand, 0),
            (by_zeros, 0),
        )
        for zero, count in cases:
            with prepared(models.model(count=1)) as (module, optimizer, _):
                optimizer.zero_grad()  # before the first step it does not count
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    for step in range(4):
                        loss_of(module, step).backward()
                        optimizer.step()
                        if zero is not None:
                            zero(module, optimizer)
                texts = [str(w.message) for w in caught if "zero_grad" in str(w.message)]
                self.assertEqual(len(texts), count, zero)
                self.assertTrue(not texts or caught[0].filename == __file__)

    def test_discard_over_two_ranks(self) -> None:
        plain = models.model(checkpointing=False)
        torchs = models.train(plain, models.adamw(plain), steps=3, clip=1.0, ranks=(0, 1))
        for strategy in ("ddp", "zero3"):
            with self.subTest(strategy):
                first, second = (sent[0] for sent in models.run_ranks(2, discard_rank, strategy))
                losses = [(a + b) / 2 for a, b in zip(first[::2], second[::2])]
                self.assertEqual(first[1::2], second[1::2])
                self.assert_close([x for pair in zip(losses, first[1::2]) for x in pair], torchs)

    def test_write_and_keep_between_commits(self) -> None:
        found = []
        for interval in (1, 3):
            with prepared(models.model(count=1), commit_interval=interval, **models.NVME) as (
                module,
                optimizer,
                engine,
            ):
                losses = models.train(module, optimizer, steps=4)
                self.assertEqual(engine.committed_step, 4 if interval == 1 else 3)
                with engine.writable(module.norm), torch.no_grad():
                    module.norm.weight.fill_(0.5)
                self.assertEqual(engine.committed_step, 4)  # the writing commits what was made
                self.assertTrue((module.norm.weight == 0.5).all())
                losses += models.train(module, optimizer, steps=1)
                self.assertEqual(engine.snapshot("kept"), 5)
                self.assertEqual(engine.committed_step, 5)
                losses += models.train(module, optimizer, steps=2)
                scratch.restore(engine, f"{engine.session.job}/kept")
                self.assertEqual(engine.committed_step, 5)
                losses += models.train(module, optimizer, steps=1)
                found.append((losses, models.values(module)))
        self.assertEqual(found[0][0], found[1][0])
        self.assertTrue(models.is_same(found[0][1], found[1][1]))

    def test_go_on_after_an_exception_amid_backward(self) -> None:
        plain = models.model()
        torchs = models.train(plain, models.adamw(plain), steps=2)
        with prepared(models.model(checkpointing=False), **models.NVME) as (
            module,
            optimizer,
            engine,
        ):

            def fail(_: Any) -> None:
                raise ValueError("amid backward")

            def hook(_: Any, __: Any, result: torch.Tensor) -> None:
                result.register_hook(fail)

            handle = module.blocks[1].register_forward_hook(hook)
            for _ in range(2):
                with self.assertRaisesRegex(ValueError, "amid backward"):
                    loss_of(module, 70).backward()
                optimizer.zero_grad()
                self.assertFalse(any(unit.holds for unit in engine.units))
            handle.remove()
            self.assert_close(models.train(module, optimizer, steps=2), torchs)

    def test_go_on_after_an_exception_in_forward(self) -> None:
        plain, module = pair(Sometimes)
        torchs = run_rows(plain, models.adamw(plain))
        with prepared(module, **models.NVME) as (_, optimizer, engine):
            with self.assertRaisesRegex(ValueError, "seven rows"):
                module(torch.ones(7, 8))
            self.assert_close(run_rows(module, optimizer), torchs)
            self.assertFalse(any(unit.depth for unit in engine.units))

    def test_clip_with_other_parameters_and_twice(self) -> None:
        def run(module: nn.Module, optimizer: Any, other: Any, rate: Any) -> list[float]:
            numbers = []
            for step in range(3):
                loss = loss_of(module, step) + (other * step).sum()
                loss.backward()
                both = [*module.parameters(), other]
                numbers.append(float(torch.nn.utils.clip_grad_norm_(both, 1.0)))
                numbers.append(float(torch.nn.utils.clip_grad_norm_(both, 0.5)))
                optimizer.step()
                rate.step()
                optimizer.zero_grad()
                rate.zero_grad()
                numbers.append(loss.item())
            return numbers

        plain = models.model(count=1)
        other = nn.Parameter(torch.ones(3))
        sgd = torch.optim.SGD([other], 0.1)
        torchs = run(plain, models.adamw(plain), other, sgd)
        mine = nn.Parameter(torch.ones(3))
        with prepared(models.model(count=1)) as (module, optimizer, _):
            ours = run(module, optimizer, mine, torch.optim.SGD([mine], 0.1))
            self.assert_close(ours, torchs)
            loss_of(module, 0).backward()
            clip = torch.nn.utils.clip_grad_norm_
            for problem, call in (
                ("norm_type", lambda: clip(module.parameters(), 1.0, norm_type=1)),
                ("not given", lambda: clip(module.norm.parameters(), 1.0)),
                ("above 0", lambda: clip(module.parameters(), 0.0)),
                (
                    "clip_grad_norm_",
                    lambda: torch.nn.utils.clip_grad_value_(module.parameters(), 1.0),
                ),
            ):
                with self.assertRaisesRegex(zinf.InvalidArgument, problem):
                    call()

    def test_report_a_norm_that_is_not_finite(self) -> None:
        with prepared(models.model(count=1)) as (module, optimizer, _):
            (loss_of(module, 0) * float("inf")).backward()
            clip = torch.nn.utils.clip_grad_norm_
            with self.assertRaisesRegex(RuntimeError, "non-finite|cannot be clipped"):
                clip(module.parameters(), 1.0, error_if_nonfinite=True)
            self.assertFalse(torch.isfinite(clip(module.parameters(), 1.0)))
            optimizer.zero_grad()
            self.assertTrue(torch.isfinite(loss_of(module, 0)))


def discard_rank(send: Any, strategy: str) -> None:
    """Discard steps as one of two ranks, then train. Sends losses and norms."""
    module = models.model(checkpointing=False)
    config = zinf.Config.load(None, strategy=strategy, timeout=30, **models.NVME)
    _, optimizer = zinf.prepare(module, models.adamw(module), config)
    rank = int(os.environ["RANK"])
    # Both have all gradients.
    models.loss_of(module, models.batch(7, rank)).backward()
    optimizer.zero_grad()
    # Rank 1 fails amid backward and discards the step, while rank 0 is in backward. Rank 0 is told
    # if it makes the step nevertheless, and discards it then.
    for makes_step in (True, False):
        handle = module.blocks[0].register_forward_hook(
            lambda _, __, result: result.register_hook(amid_backward) and None
        )
        failure: Any = None
        try:
            models.loss_of(module, models.batch(8, rank)).backward()
            if makes_step:
                optimizer.step()
        except (ZeroDivisionError, zinf.Canceled) as error:
            failure = error
        expected = ZeroDivisionError if rank else zinf.Canceled if makes_step else type(None)
        assert type(failure) is expected, failure
        assert rank or not makes_step or "rank 1 (pid" in str(failure)
        module.zero_grad()
        handle.remove()
    # Both know the norm.
    models.loss_of(module, models.batch(9, rank)).backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.zero_grad()
    numbers = models.train(module, optimizer, steps=3, clip=1.0, ranks=(rank,))
    zinf.engine_of(module).close()
    send(numbers)


def amid_backward(_: Any) -> None:
    """Fail in rank 1; in rank 0 wait until rank 1 discards the step."""
    if os.environ["RANK"] == "1":
        raise ZeroDivisionError
    deadline = time.monotonic() + house.patient(20)
    while time.monotonic() < deadline:
        for job in zinf.admin.jobs(os.environ["ZINF_JOB"], socket_path=os.environ["ZINF_SOCKET"]):
            if any(rank["doing"] == "step_discard" for rank in job["ranks"]):
                return
    raise AssertionError("rank 1 does not discard the step")


class Refusals(unittest.TestCase):
    def test_of_graphs_that_outlive_a_step(self) -> None:
        with prepared(models.model()) as (module, optimizer, _):
            loss = loss_of(module, 0)
            kept = loss_of(module, 1)
            loss.backward()
            optimizer.step()
            with self.assertRaisesRegex(zinf.ZinfError, "graph of an earlier step"):
                kept.backward()
            optimizer.zero_grad()
            loss_of(module, 1).backward()
            optimizer.step()

    def test_of_a_second_backward(self) -> None:
        with prepared(models.model()) as (module, optimizer, _):
            loss_of(module, 0).backward()
            with self.assertRaisesRegex(zinf.ZinfError, "gradient_accumulation_steps"):
                loss_of(module, 1).backward()
            optimizer.zero_grad()
            loss_of(module, 0).backward()
            optimizer.step()

    def test_of_a_backward_through_a_backward(self) -> None:
        plain = models.model()
        torchs = models.train(plain, models.adamw(plain))
        with prepared(models.model()) as (module, optimizer, _):
            loss = loss_of(module, 0)
            with self.assertRaisesRegex(zinf.ZinfError, "create_graph"):
                torch.autograd.grad(loss, list(module.parameters()), create_graph=True)
            with self.assertRaisesRegex(zinf.ZinfError, "create_graph"):
                loss_of(module, 0).backward(create_graph=True)
            optimizer.zero_grad()
            for mine, other in zip(models.train(module, optimizer), torchs):
                self.assertAlmostEqual(mine, other, delta=1e-5 * abs(other))

    def test_of_clipping_that_left_all_parameters_out(self) -> None:
        with prepared(models.model()) as (module, optimizer, _):
            torch.nn.utils.clip_grad_norm_([], 1.0)  # no gradients anywhere: as torch does
            loss_of(module, 0).backward()
            given = [item for item in module.parameters() if item.grad is not None]
            for clip in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_):
                with self.assertRaisesRegex(zinf.InvalidArgument, "give model.parameters"):
                    clip(given, 1.0)
            other = nn.Linear(2, 2)
            torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
            optimizer.step()

    def test_of_a_grad_scaler(self) -> None:
        scaler_class = getattr(torch.amp, "GradScaler", None)
        with prepared(models.model()) as (module, optimizer, _):
            if scaler_class is None:  # torch < 2.3 has it for CUDA only; it asks for this name
                with self.assertRaisesRegex(zinf.InvalidArgument, "GradScaler"):
                    _ = optimizer._step_supports_amp_scaling
                return
            scaler = scaler_class("cpu", init_scale=1024.0)
            scaler.scale(loss_of(module, 0)).backward()
            with self.assertRaisesRegex(zinf.InvalidArgument, "Leave it out"):
                scaler.step(optimizer)

    def test_of_compiled_code(self) -> None:
        with prepared(models.model()) as (module, _, _):
            storage: Any = next(module.parameters()).storage()  # what torch.compile() asks
            with self.assertRaisesRegex(zinf.ReadOnlyParameter, "torch.compile"):
                _ = storage._fix_weakref

    def test_of_models(self) -> None:
        mixed = models.model()
        mixed.norm.double()
        lazy = nn.Sequential(nn.LazyLinear(3))
        doubled = models.model().double()
        scripted = torch.jit.script(nn.Linear(2, 2))
        traced = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
        for text, module in (
            (
                r"2 types \(torch.float32 of 'blocks.0.norm1.weight', 'blocks.0.norm1.bias', "
                r"'blocks.0.mix.weight' and \d+ more, torch.float64 of 'norm.weight', "
                r"'norm.bias'\), and a job",
                mixed,
            ),
            ("'Linear|RecursiveScriptModule' was made by torch.jit.script", scripted),
            ("torch.jit.trace", traced),
            ("module '1' was made by", nn.Sequential(nn.Linear(2, 2), scripted)),
            ("no shape yet", lazy),
            ("float64", doubled),
            ("no parameters", nn.ReLU()),
        ):
            with self.subTest(text), self.assertRaisesRegex(zinf.InvalidArgument, text):
                zinf.prepare(module, None, house.config())

    def test_of_torch_jit(self) -> None:
        inputs = (models.batch(0),)
        with prepared(models.model()) as (module, _, _):
            for name, call in (
                ("script", lambda: torch.jit.script(module)),
                ("trace", lambda: torch.jit.trace(module, inputs)),
                ("trace_module", lambda: torch.jit.trace_module(module, {"forward": inputs})),
                ("script", lambda: torch.jit.script(obj=module.norm)),
            ):
                with self.assertRaisesRegex(zinf.ZinfError, rf"{name}\(\) of a model.*deepcopy"):
                    call()
            copied = torch.jit.trace(copy.deepcopy(module), inputs)
            self.assertTrue(torch.isfinite(copied(*inputs)).all())
        scripted = torch.jit.script(nn.Linear(2, 2))
        self.assertEqual(scripted(torch.zeros(1, 2)).shape, (1, 2))

    def test_of_optimizers(self) -> None:
        module = models.model()
        used = models.adamw(module)
        loss_of(module, 0).backward()
        used.step()
        other = models.model()
        for text, optimizer in (
            ("made steps", used),
            ("not in the model", models.adamw(other)),
            ("amsgrad", models.adamw(module, amsgrad=True)),
            ("maximize", torch.optim.SGD(module.parameters(), 0.1, maximize=True)),
            ("RMSprop", torch.optim.RMSprop(module.parameters())),
        ):
            with self.subTest(text), self.assertRaisesRegex(zinf.InvalidArgument, text):
                zinf.prepare(module, optimizer, house.config())
        with self.assertRaisesRegex(zinf.ZinfError, "zinf.prepare"):
            zinf.optim.AdamW(module.parameters()).step()
        with self.assertRaises(TypeError):
            zinf.optim.AdamW(module.parameters(), rate=3)

    def test_of_second_uses(self) -> None:
        former = models.adamw(module := models.model())
        with prepared(module, former) as (_, optimizer, _):
            with self.assertRaisesRegex(zinf.InvalidArgument, "prepared already"):
                zinf.prepare(module, None, house.config())
            with self.assertRaisesRegex(zinf.ZinfError, "returned another"):
                former.step()
            with self.assertRaisesRegex(zinf.InvalidArgument, "another model"):
                zinf.optim.convert(optimizer)
            with self.assertRaisesRegex(zinf.InvalidArgument, "not in the model"):
                zinf.prepare(models.model(), optimizer, house.config())
            with self.assertRaisesRegex(zinf.InvalidArgument, "add_param_group"):
                optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
            with self.assertRaisesRegex(
                (RuntimeError, TypeError), "assign"
            ):  # torch < 2.1 has none
                module.load_state_dict(module.state_dict(), assign=True)

    def test_of_models_that_change(self) -> None:
        with prepared(models.model()) as (module, optimizer, _):
            module.embed = nn.Embedding(models.VOCAB + 6, models.WIDTH)
            with self.assertRaisesRegex(zinf.InvalidArgument, "'embed' was replaced"):
                loss_of(module, 0).backward()
            optimizer.zero_grad()


class Init(unittest.TestCase):
    def test_has_the_bits_of_an_ordinary_start(self) -> None:
        def build(seed: int) -> nn.Module:
            torch.manual_seed(seed)
            module = models.Transformer(count=2)
            for layer in module.modules():
                if isinstance(layer, nn.Linear):
                    layer.weight.data.normal_(0.0, 0.02)
                    nn.init.trunc_normal_(layer.weight, std=0.1) if layer.bias is not None else None
            module.embed.weight.data[3].zero_()
            with torch.no_grad():
                module.blocks[1].up.bias[1:4] = 7.0
            return module

        plain = build(3)
        numbers = torch.rand(4)
        with zinf.init():
            module = build(3)
        self.assertTrue(torch.equal(torch.rand(4), numbers))  # as many random numbers were used
        self.assertEqual(module.embed.weight.shape, (models.VOCAB, models.WIDTH))
        self.assertTrue(all(is_pending(p) for p in module.parameters()))
        self.assertTrue(torch.equal(module.norm.weight + 0, plain.norm.weight))
        with prepared(module, **models.NVME):
            self.assertTrue(models.is_same(models.values(module), models.values(plain)))
            self.assertIs(module.head.weight, module.embed.weight)

    def test_needs_memory_for_one_unit(self) -> None:
        def build(send: Any) -> None:
            ctypes.CDLL(None).malloc_trim(0)  # Memory of other tests would serve for this one.
            start = anonymous_kib()
            with zinf.init():
                module = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12)))  # 48 MiB
            send(anonymous_kib() - start)
            plain = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12)))
            send(anonymous_kib() - start)
            del module, plain

        process = models.Process({}, build)
        pending, plain = process.values()
        self.assertEqual(process.finish(), 0)
        self.assertLess(pending, 20 << 10)
        self.assertGreater(plain, 44 << 10)


def anonymous_kib() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


class Names(unittest.TestCase):
    def test_of_the_package_stay_functions(self) -> None:
        module = importlib.import_module("zinf.prepare")
        self.assertIs(zinf.prepare, module.prepare)
        zinf.prepare = module  # as the import of a submodule does
        self.assertIs(zinf.prepare, module.prepare)

    def test_that_are_long_stay_different(self) -> None:
        self.assertEqual(units.short_name("x" * 95), "x" * 95)
        long = ["ü" * 60 + f".{number}." + "y" * 60 for number in range(3)]
        short = [units.short_name(name) for name in long]
        self.assertEqual(len(set(short)), 3)
        self.assertTrue(all(len(name.encode()) <= 95 for name in short))
        module = nn.ModuleDict({"x" * 100: nn.Linear(2, 2)})
        with prepared(module) as (_, _, engine):
            self.assertEqual(next(engine.named_tensors())[0], "x" * 100 + ".weight")

    def test_of_blocks(self) -> None:
        module = models.model()
        self.assertEqual(
            [name for name, _ in units.find_blocks(module)], ["blocks.0", "blocks.1", "blocks.2"]
        )
        self.assertEqual([name for name, _ in units.find_blocks(module, "embed")], ["embed"])
        with self.assertRaisesRegex(zinf.InvalidArgument, "Nothing"):
            units.find_blocks(module, ["Block", "Nothing"])


def units_of(module: nn.Module, blocks: Any = None) -> dict[str, list[str]]:
    return {
        plan.name: [name for name, _ in plan.parameters]
        for plan in units.plan_units(module, blocks)
        if not plan.name.startswith("blocks.")
    }


class OuterUnits(unittest.TestCase):
    def test_are_large_modules_outside_blocks(self) -> None:
        norm = ["norm.weight", "norm.bias"]
        tied, untied = models.model(), models.model(is_tied=False)
        self.assertEqual(units_of(tied), {"embed": ["embed.weight"], "<rest>": norm})
        plan = next(plan for plan in units.plan_units(tied) if plan.is_outer)
        self.assertEqual(plan.modules, [tied.embed, tied.head])
        self.assertEqual(
            units_of(untied),
            {"embed": ["embed.weight"], "head": ["head.weight"], "<rest>": norm},
        )
        # Small ones, those of a list of modules, and those of a model without blocks stay.
        untied.head = nn.Linear(models.WIDTH, 8, bias=False)
        self.assertEqual(units_of(untied)["<rest>"], [*norm, "head.weight"])
        self.assertEqual(list(units_of(tied, list(tied.blocks))), ["<rest>"])
        self.assertEqual(list(units_of(nn.Linear(50, 50))), ["<rest>"])

    def test_that_share_parameters(self) -> None:
        module = models.model(is_tied=False)
        # A block has it as well: it belongs to the rest.
        module.blocks[1].side = module.head.weight
        self.assertNotIn("head", units_of(module))
        self.assertIn("blocks.1.side", units_of(module)["<rest>"])
        # So does the module around the blocks.
        module = models.model(is_tied=False)
        module.register_parameter("side", module.head.weight)
        self.assertIn("side", units_of(module)["<rest>"])
        self.assertNotIn("head", units_of(module))
        # A module that shares with two others joins them.
        module = models.model(is_tied=False)
        module.last = nn.Module()
        module.last.first, module.last.second = module.embed.weight, module.head.weight
        plans = [plan for plan in units.plan_units(module) if plan.is_outer]
        self.assertEqual([plan.name for plan in plans], ["embed"])
        self.assertIs(plans[0].module, module.embed)
        self.assertEqual(set(plans[0].modules), {module.embed, module.head, module.last})
        self.assertEqual([name for name, _ in plans[0].parameters], ["embed.weight", "head.weight"])

    def test_go_between_their_uses(self) -> None:
        for is_tied in (True, False):
            self.check_goes_between_uses(is_tied)

    def check_goes_between_uses(self, is_tied: bool) -> None:
        module = models.model(is_tied=is_tied)
        with prepared(module, **models.NVME) as (_, optimizer, engine):
            seen: list[tuple[int, list[str]]] = []

            def note(number: int) -> None:
                seen.append((number, [u.name for u in engine.units if u.is_outer and u.holds]))

            def before(block: Any, args: Any, number: int) -> None:
                note(number)

            def after(block: Any, args: Any, result: Any, number: int) -> None:
                result.register_hook(lambda _: note(-number - 1))

            for number, block in enumerate(module.blocks):
                block.register_forward_pre_hook(functools.partial(before, number=number))
                block.register_forward_hook(functools.partial(after, number=number))
            loss_of(module, 0).backward()
            self.assertEqual([names for _, names in seen], [[]] * len(seen))
            self.assertEqual([number for number, _ in seen], [0, 1, 2, -3, -2, -1])
            # The backward of the embedding needs no values.
            counts = {name: engine.session.waits.sum_of("unshard", unit.index).count
                      for name, unit in ((u.name, u) for u in engine.units)}  # fmt: skip
            self.assertEqual(counts["embed"], 3 if is_tied else 1)
            optimizer.step()

    def test_refuse_a_job_of_other_units(self) -> None:
        config = house.config()
        module, _ = zinf.prepare(models.model(), None, config.replace(optimizer="sgd"))
        engine = zinf.engine_of(module)
        engine.snapshot("kept")
        engine.close()
        with (
            mock.patch.object(units, "_plan_outer", return_value=[]),
            self.assertRaisesRegex(zinf.InvalidArgument, "unit.*embed"),
        ):
            zinf.prepare(models.model(), None, config.replace(optimizer="sgd"))
        zinf.admin.delete_job(config.job, socket_path=config.socket_path)


if __name__ == "__main__":
    unittest.main()
