# SPDX-License-Identifier: Apache-2.0
"""Embeddings and heads: rows that come alone, and gradients that go straight into zinf's memory.

Goal: the bits are those of autograd's gradients; the values are, whatever else uses the parameter.
What cannot be done so goes through autograd or is refused. Method: the same loop with and without.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import unittest
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import torch.nn.functional as F  # noqa: N812 - the usual name
import torch.utils.checkpoint
import torch_models as models
import zinf
from test_training import TrainingCase, prepared
from torch import nn
from zinf.module import budgets, direct
from zinf.module.gradients import Gradients
from zinf.session import Session

EARLY = {"strategy": "zero3", "update_early": True, **models.NVME}


class Language(nn.Module):
    """An embedding and a head that are tied by the function that uses them."""

    def __init__(self, padding: Any = None, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.embed = nn.Embedding(models.VOCAB, models.WIDTH, padding_idx=padding)
        self.blocks = nn.ModuleList(models.Block(models.WIDTH, 0.0) for _ in range(2))
        self.to(dtype)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return F.linear(x, self.embed.weight)


class Pair(nn.Module):
    """Two lookups and two heads of one parameter, and a product that autograd takes care of."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(models.VOCAB, models.WIDTH)
        self.blocks = nn.ModuleList(models.Block(models.WIDTH, 0.0) for _ in range(2))
        self.head = nn.Linear(models.WIDTH, models.VOCAB, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        x = self.blocks[0](x) + self.embed(ids.flip(1))
        beside = self.head(x).mean()
        x = self.blocks[1](x)
        return self.head(x) + x @ self.embed.weight.t() + beside


def transforms() -> Any:
    """Return the module with vmap() and grad(), which has another name before torch 2.0."""
    if hasattr(torch, "func"):
        return torch.func
    try:
        return importlib.import_module("functorch")
    except ImportError:
        raise unittest.SkipTest("this torch has no transforms") from None


def untied(dtype: Any = torch.float32) -> nn.Module:
    return models.model(is_tied=False).to(dtype)


def made(kind: Any, **options: Any) -> Any:
    torch.manual_seed(1)
    return kind(**options)


class Whole(Language):
    """All of it is computed again in backward."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.use_reentrant = use_reentrant
        self.token = nn.Parameter(torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        def run(token: torch.Tensor) -> torch.Tensor:
            return Language.forward(self, ids) + token

        return torch.utils.checkpoint.checkpoint(
            run, self.token * 1, use_reentrant=self.use_reentrant
        )


class Parts(TrainingCase):
    has_room = True  # for a gradient that comes in parts, beside those of blocks

    def run_both(self, kind: Any, options: dict[str, Any], **settings: Any) -> int:
        """Train with and without parts. Return the parts that were taken."""
        found = []
        counts = []
        for takes_parts in (True, False):
            module = made(kind, **options)
            former = Gradients._take_part
            taken = 0

            def take(self: Any, slot: Any, add: Any) -> None:
                nonlocal taken
                taken += 1
                former(self, slot, add)  # noqa: B023 - called in this turn

            with (
                mock.patch.object(Gradients, "_take_part", take),
                mock.patch.object(budgets, "leaves_room", return_value=self.has_room),
                mock.patch.object(
                    direct, "_takes_parts", direct._takes_parts if takes_parts else lambda _: False
                ),
                prepared(module, **settings) as (_, optimizer, engine),
            ):
                losses = models.train(module, optimizer, steps=4)
                found.append((losses, models.values(module)))
                counts.append(taken)
                if settings.get("update_early"):
                    self.assertEqual(engine.committed_step, 4)
        self.assertEqual(found[0][0], found[1][0])
        self.assertTrue(models.is_same(found[0][1], found[1][1]))
        self.assertEqual(counts[1], 0)
        return counts[0]

    def test_give_the_bits_of_autograd(self) -> None:
        for settings in ({}, EARLY):
            for dtype in (torch.float32, torch.bfloat16):
                with self.subTest(dtype=dtype, **settings):
                    self.assertEqual(self.run_both(Language, {"dtype": dtype}, **settings), 8)
                    self.assertEqual(self.run_both(untied, {"dtype": dtype}, **settings), 8)
        self.assertEqual(self.run_both(Language, {"padding": 3}), 8)
        self.assertEqual(self.run_both(Language, {"padding": -1}), 8)

    def test_are_added_up_with_what_autograd_brings(self) -> None:
        for settings in ({}, EARLY):
            with prepared(made(Pair), **settings) as (module, optimizer, _):
                plain = made(Pair)
                torchs = models.train(plain, models.adamw(plain), steps=4)
                self.assert_close(models.train(module, optimizer, steps=4), torchs)

    def test_of_what_is_computed_again_in_backward(self) -> None:
        for use_reentrant in (True, False):
            for settings in ({}, EARLY):
                with self.subTest(use_reentrant=use_reentrant, **settings):
                    options = {"use_reentrant": use_reentrant}
                    self.assertEqual(self.run_both(Whole, options, **settings), 8)

    def test_of_later_passes_are_added_up_first(self) -> None:
        found = []
        for takes_parts in (direct._takes_parts, lambda _: False):
            with (
                mock.patch.object(direct, "_takes_parts", takes_parts),
                prepared(made(Language)) as (module, optimizer, engine),
            ):
                for step in range(3):
                    losses = [models.loss_of(module, models.batch(2 * step + i)) for i in range(2)]
                    with engine.no_sync():
                        losses[0].backward()
                    losses[1].backward()
                    optimizer.step()
                    optimizer.zero_grad()
                found.append(models.values(module))
        self.assertTrue(models.is_same(*found))

    def test_are_not_taken_of_several_micro_batches(self) -> None:
        with (
            mock.patch.object(Gradients, "_take_part", side_effect=AssertionError),
            prepared(made(Language), gradient_accumulation_steps=2) as (module, optimizer, _),
        ):
            models.train(module, optimizer, steps=2, accumulation=2)

    def test_leave_hooks_of_the_parameter_the_whole_gradient(self) -> None:
        norms = []
        plain = made(Language)
        with prepared(made(Language)) as (module, _, _):
            for model in (plain, module):
                model.embed.weight.register_hook(lambda g: norms.append(g.norm().item()))
                models.loss_of(model, models.batch(0)).backward()
        self.assertAlmostEqual(norms[0], norms[1], delta=1e-5 * norms[0])

    def test_leave_hooks_after_accumulation_to_autograd(self) -> None:
        with prepared(made(Language)) as (module, optimizer, _):
            weight = module.embed.weight
            if not hasattr(weight, "register_post_accumulate_grad_hook"):
                self.skipTest("this torch has no such hooks")
            seen: list[Any] = []
            hook = weight.register_post_accumulate_grad_hook(seen.append)
            with mock.patch.object(Gradients, "_take_part", side_effect=AssertionError):
                models.train(module, optimizer, steps=1)
            self.assertEqual(len(seen), 1)
            hook.remove()
            models.train(module, optimizer, steps=1)
            self.assertEqual(len(seen), 1)

    def test_refuse_hooks_that_come_after_forward(self) -> None:
        with prepared(made(Language)) as (module, optimizer, engine):
            weight = module.embed.weight
            kinds = ("register_hook", "register_post_accumulate_grad_hook")
            for kind in [kind for kind in kinds if hasattr(weight, kind)]:
                loss = models.loss_of(module, models.batch(0))
                hook = getattr(weight, kind)(lambda *_: None)
                with self.assertRaisesRegex(zinf.ZinfError, "embed.weight' before forward"):
                    loss.backward()
                engine.discard()
                hook.remove()
            models.train(module, optimizer, steps=1)

    def test_of_a_retained_graph_come_again(self) -> None:
        def train(model: nn.Module, optimizer: Any, engine: Any = None) -> list[float]:
            losses = []
            for number in range(3):
                loss = models.loss_of(model, models.batch(number))
                with engine.no_sync() if engine else contextlib.nullcontext():
                    loss.backward(retain_graph=True)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            return losses

        for kind in (Language, Pair, untied):
            plain = made(kind)
            torchs = train(plain, models.adamw(plain))
            found = []
            for takes_parts in (direct._takes_parts, lambda _: False):
                with (
                    self.subTest(kind=kind),
                    mock.patch.object(direct, "_takes_parts", takes_parts),
                    mock.patch.object(budgets, "leaves_room", return_value=self.has_room),
                    prepared(made(kind)) as (module, optimizer, engine),
                ):
                    self.assert_close(train(module, optimizer, engine), torchs)
                    found.append(models.values(module))
            if kind is not Pair:
                self.assertTrue(models.is_same(*found))

    def test_are_not_taken_inside_transforms(self) -> None:
        plain = made(Language)
        ids = models.batch(0)
        x = torch.randn(4, 3, models.WIDTH)

        def square(model: Any, value: torch.Tensor) -> torch.Tensor:
            return F.linear(value, model.embed.weight).square().mean()

        with prepared(made(Language)) as (module, optimizer, _):
            found = []
            for model in (plain, module):
                looked_up = transforms().vmap(model.embed)(ids)
                with torch.no_grad():
                    found.append((looked_up, transforms().vmap(lambda v, m=model: square(m, v))(x)))
                if model is plain:
                    continue
                with mock.patch.object(direct, "_Part", side_effect=AssertionError):
                    transforms().vmap(model.embed)(ids)
                    with self.assertRaisesRegex(zinf.ZinfError, "create_graph"):
                        transforms().grad(lambda v: square(module, v))(x)
            for mine, other in zip(*found):
                self.assertTrue(torch.equal(mine, other))
            models.train(module, optimizer, steps=1)

    def test_of_an_output_that_is_not_used_do_not_matter(self) -> None:
        with prepared(made(Language), **EARLY) as (module, optimizer, _):
            for number in range(3):
                module(models.batch(number))
                models.loss_of(module, models.batch(number)).backward()
                optimizer.step()
                optimizer.zero_grad()

    def test_do_not_come_where_autograd_is_asked_for_others(self) -> None:
        with prepared(made(Language)) as (module, optimizer, engine):
            x = torch.randn(2, 3, models.WIDTH, requires_grad=True)
            loss = F.linear(x, module.embed.weight).square().mean()
            (found,) = torch.autograd.grad(loss, [x])
            self.assertEqual(found.shape, x.shape)
            self.assertFalse(engine.has_begun)
            models.train(module, optimizer, steps=1)

    def test_cannot_be_asked_of_autograd(self) -> None:
        with prepared(made(Language)) as (module, optimizer, _):
            loss = models.loss_of(module, models.batch(0))
            with self.assertRaisesRegex(zinf.ZinfError, "embed.weight.*deepcopy"):
                torch.autograd.grad(loss, [module.embed.weight])
            for inputs in (module.embed.weight, [module.embed.weight]):
                with self.assertRaisesRegex(zinf.ZinfError, "inputs.*embed.weight.*deepcopy"):
                    loss.backward(inputs=inputs)
            models.train(module, optimizer, steps=1)

    def test_cannot_be_asked_of_autograd_after_a_backward(self) -> None:
        with prepared(made(Language)) as (module, optimizer, engine):
            loss = models.loss_of(module, models.batch(0))
            loss.backward(retain_graph=True)
            with self.assertRaisesRegex(zinf.ZinfError, "embed.weight.*deepcopy"):
                torch.autograd.grad(loss, [module.embed.weight], allow_unused=True)
            with self.assertRaisesRegex(zinf.ZinfError, "inputs.*embed.weight.*deepcopy"):
                loss.backward(inputs=[module.embed.weight])
            optimizer.step()
            # The embedding is in no graph of this step.
            (found,) = torch.autograd.grad(module.embed.weight.square().sum(), module.embed.weight)
            self.assertEqual(found.shape, module.embed.weight.shape)
            engine.discard()
            models.train(module, optimizer, steps=1)

    def test_do_not_depend_on_the_default_device(self) -> None:
        if not hasattr(torch, "set_default_device"):
            self.skipTest("this torch has no default device")
        spec: Any = importlib.util.spec_from_file_location("again", direct.__file__)
        module = importlib.util.module_from_spec(spec)
        with torch.device("meta"):
            spec.loader.exec_module(module)
        self.assertEqual(module._needs_grad.device.type, "cpu")


class PartsWithoutRoom(Parts):
    has_room = False

    def test_leave_the_memory_of_gradients_to_blocks(self) -> None:
        settings = {"strategy": "zero3", "grad_budget_bytes": 48 << 10, **models.NVME}
        with prepared(made(Language), **settings) as (module, optimizer, engine):
            self.assertFalse(any(unit.has_room for unit in engine.units))
            models.train(module, optimizer, steps=2)

    def test_of_a_backward_that_failed_do_not_enter_the_next_step(self) -> None:
        def fail(_: Any) -> None:
            raise KeyError

        def watch(_: Any, __: Any, result: torch.Tensor) -> None:
            result.register_hook(fail)

        plain = made(Language)
        torchs = models.train(plain, models.adamw(plain), steps=2)
        with (
            mock.patch.object(budgets, "leaves_room", return_value=False),
            prepared(made(Language)) as (module, optimizer, engine),
        ):
            (unit,) = [unit for unit in engine.units if unit.is_outer]
            hook = module.blocks[1].register_forward_hook(watch)
            loss = models.loss_of(module, models.batch(5))
            hook.remove()
            with self.assertRaises(KeyError):
                loss.backward()
            self.assertIsNotNone(unit.slots[0].beside)
            self.assertFalse(engine.has_begun)
            optimizer.zero_grad()
            self.assertIsNone(unit.slots[0].beside)
            self.assert_close(models.train(module, optimizer, steps=2), torchs)


class Scaled(nn.Embedding):
    """Reads its whole weight."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.embedding(ids, self.weight * 2)


class Rows(TrainingCase):
    def test_are_all_that_a_lookup_waits_for(self) -> None:
        asked: list[int] = []
        former = Session.unshard_rows

        def unshard(self: Any, unit: int, param: int, address: int, count: int) -> None:
            asked.append(count)
            former(self, unit, param, address, count)

        for settings in ({}, EARLY):
            plain = made(Language)
            torchs = models.train(plain, models.adamw(plain), steps=3)
            with (
                self.subTest(**settings),
                mock.patch.object(Session, "unshard_rows", unshard),
                prepared(made(Language), **settings) as (module, optimizer, engine),
            ):
                asked.clear()
                self.assert_close(models.train(module, optimizer, steps=3), torchs)
                self.assertEqual(asked, [4 * 11] * 3)
                (unit,) = [unit for unit in engine.units if unit.is_outer]
                self.assertFalse(unit.is_part or unit.lookup_count or unit.holds)

    def test_are_not_asked_for_by_other_classes(self) -> None:
        module = made(Language)
        module.embed.__class__ = Scaled
        plain = made(Language)
        plain.embed.__class__ = Scaled
        torchs = models.train(plain, models.adamw(plain), steps=3)
        with (
            mock.patch.object(Session, "unshard_rows", side_effect=AssertionError),
            prepared(module, **EARLY) as (_, optimizer, _),
        ):
            self.assert_close(models.train(module, optimizer, steps=3), torchs)

    def test_that_do_not_exist_are_torchs_error(self) -> None:
        with prepared(made(Language)) as (module, optimizer, _):
            with self.assertRaises(IndexError):
                module(torch.tensor([[models.VOCAB]]))
            for padding in (models.VOCAB, -models.VOCAB - 1):
                with self.assertRaises(AssertionError):
                    F.embedding(models.batch(0), module.embed.weight, padding)
            self.assertEqual(module(torch.zeros((2, 0), dtype=torch.int64)).shape[1], 0)
            models.train(module, optimizer, steps=1)

    def test_of_an_older_library_are_the_whole_unit(self) -> None:
        with (
            mock.patch.object(Session, "has_rows", False),
            mock.patch.object(Session, "unshard_rows", side_effect=AssertionError),
            prepared(made(Language), **EARLY) as (module, optimizer, _),
        ):
            models.train(module, optimizer, steps=2)

    def test_of_an_interrupted_lookup_are_not_taken_for_the_unit(self) -> None:
        with prepared(made(Language), **models.NVME) as (module, optimizer, engine):
            (unit,) = [unit for unit in engine.units if unit.is_outer]
            with (
                mock.patch.object(engine, "_note", side_effect=KeyboardInterrupt),
                self.assertRaises(KeyboardInterrupt),
            ):
                module(models.batch(0))
            self.assertTrue(unit.is_part)
            self.assertEqual(float((module.embed.weight - module.embed.weight).abs().max()), 0.0)
            self.assertFalse(unit.is_part)
            models.train(module, optimizer, steps=1)


if __name__ == "__main__":
    unittest.main()
