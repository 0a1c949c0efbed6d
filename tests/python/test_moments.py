# SPDX-License-Identifier: Apache-2.0
"""Optimizer state that comes from torch, goes to torch, or stays when weights are written.

Goal: a run of torch's continues in zinf, and one of zinf's in torch, with the same losses; weights
are swapped without the loss of moments. Method: ten steps by torch alone; five of them, and five in
zinf with torch's state, in memory and on NVMe.
"""

from __future__ import annotations

import copy
import os
import unittest
from typing import Any, Callable

try:
    import torch
except ImportError as error:  # the package itself needs no torch
    raise unittest.SkipTest("torch is not installed") from error

import torch_models as models
import zinf
from test_training import prepared
from torch import nn

CLOSE = 1e-6
PLACES: tuple[dict[str, Any], ...] = (
    {},
    models.NVME,
    {"offload_optimizer": "nvme", "strategy": "zero3"},
)

Make = Callable[[nn.Module], torch.optim.Optimizer]


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)


def adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=1e-3, weight_decay=0.01)


def adagrad(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adagrad(module.parameters(), lr=0.01, lr_decay=0.1)


def groups_of_adamw(module: nn.Module) -> torch.optim.Optimizer:
    items = list(module.parameters())
    flat = [item for item in items if item.dim() < 2]
    rest = [item for item in items if item.dim() >= 2]
    return torch.optim.AdamW(
        [{"params": flat, "weight_decay": 0.0}, {"params": rest, "weight_decay": 0.1}],
        lr=1e-3,
    )


MAKES: dict[str, Make] = {
    "adamw": models.adamw,
    "groups": groups_of_adamw,
    "adam": adam,
    "sgd": sgd,
    "adagrad": adagrad,
}


def tensors_of(state: dict[str, Any]) -> dict[tuple[Any, str], torch.Tensor]:
    return {
        (key, name): torch.as_tensor(value)
        for key, entry in state["state"].items()
        for name, value in entry.items()
        if value is not None
    }


def continue_rank(send: Any, weights: Any, saved: Any, settings: dict[str, Any]) -> None:
    rank = int(os.environ["RANK"])
    module = models.model()
    module, optimizer = zinf.prepare(module, models.adamw(module), timeout=20, **settings)
    engine = zinf.engine_of(module)
    module.load_state_dict(weights)
    optimizer.load_state_dict(saved)
    state: Any = optimizer.state_dict(tensors=True) if rank else {}  # one rank alone
    send(sorted(state))
    send(models.train(module, optimizer, steps=5, ranks=(rank,)))
    engine.close()


class MomentsCase(unittest.TestCase):
    def assert_close(self, ours: list[float], torchs: list[float]) -> None:
        self.assertEqual(len(ours), len(torchs))
        for mine, other in zip(ours, torchs):
            self.assertLessEqual(abs(mine - other), CLOSE * abs(other))

    def assert_same(self, ours: dict[str, Any], others: dict[str, Any]) -> None:
        mine, wanted = tensors_of(ours), tensors_of(others)
        self.assertEqual(mine.keys(), wanted.keys())
        for key, value in mine.items():
            self.assertTrue(torch.equal(value, wanted[key]), key)


class FromTorch(MomentsCase):
    def test_the_next_steps_have_torchs_losses(self) -> None:
        for name, make in MAKES.items():
            plain = models.model()
            theirs = make(plain)
            models.train(plain, theirs, steps=5)
            weights = copy.deepcopy(plain.state_dict())
            saved = copy.deepcopy(theirs.state_dict())
            torchs = models.train(plain, theirs, steps=5)
            for settings in PLACES if name == "adamw" else PLACES[1:2]:
                with self.subTest(optimizer=name, **settings):
                    module = models.model()
                    module.load_state_dict(weights)
                    with prepared(module, make(module), **settings) as (
                        module,
                        optimizer,
                        _,
                    ):
                        optimizer.load_state_dict(saved)
                        self.assert_close(models.train(module, optimizer, steps=5), torchs)

    def test_weights_may_come_after_the_state(self) -> None:
        plain = models.model()
        theirs = models.adamw(plain)
        models.train(plain, theirs, steps=5)
        weights = copy.deepcopy(plain.state_dict())
        saved = copy.deepcopy(theirs.state_dict())
        torchs = models.train(plain, theirs, steps=5)
        for settings in PLACES:
            with self.subTest(**settings):
                module = models.model()
                with prepared(module, **settings) as (module, optimizer, engine):
                    models.train(module, optimizer, steps=2)  # forgotten
                    optimizer.load_state_dict(saved)
                    module.load_state_dict(weights)
                    self.assertEqual(engine.session.update_count, 5)
                    self.assert_close(models.train(module, optimizer, steps=5), torchs)

    def test_two_ranks_continue_together(self) -> None:
        plain = models.model()
        theirs = models.adamw(plain)
        models.train(plain, theirs, steps=5, ranks=(0, 1))
        weights = copy.deepcopy(plain.state_dict())
        saved = copy.deepcopy(theirs.state_dict())
        torchs = models.train(plain, theirs, steps=5, ranks=(0, 1))
        settings = {"strategy": "zero2", "offload_optimizer": "nvme"}
        first, second = models.run_ranks(2, continue_rank, weights, saved, settings)
        self.assertEqual((first[0], second[0]), ([], ["param_groups", "state"]))
        self.assert_close([(a + b) / 2 for a, b in zip(first[1], second[1])], torchs)

    def test_state_that_does_not_fit_is_refused_by_name_and_changes_nothing(
        self,
    ) -> None:
        plain = models.model()
        theirs = models.adamw(plain)
        models.train(plain, theirs, steps=1)
        saved = theirs.state_dict()

        def changed(change: Callable[[dict[Any, Any]], Any]) -> dict[str, Any]:
            state = copy.deepcopy(saved)
            change(state["state"])
            return state

        cases = {
            "has nothing for parameter": changed(lambda state: state.pop(0)),
            "has no exp_avg_sq": changed(lambda state: state[0].pop("exp_avg_sq")),
            "has shape": changed(lambda state: state[0].update(exp_avg=torch.zeros(3))),
            "has no step": changed(lambda state: state[0].pop("step")),
            "counts 1 steps for parameter": changed(
                lambda state: state[1].update(step=torch.tensor(7.0))
            ),
        }
        with prepared(models.model()) as (module, optimizer, _):
            models.train(module, optimizer, steps=2)
            before = optimizer.state_dict(tensors=True)
            for words, state in cases.items():
                with (
                    self.subTest(words),
                    self.assertRaisesRegex(zinf.InvalidArgument, words),
                ):
                    optimizer.load_state_dict(state)
            self.assert_same(optimizer.state_dict(tensors=True), before)

    def test_state_before_prepare_is_refused(self) -> None:
        plain = models.model()
        theirs = models.adamw(plain)
        models.train(plain, theirs, steps=1)
        ours = zinf.optim.AdamW(models.model().parameters())
        with self.assertRaisesRegex(zinf.ZinfError, "before zinf.prepare"):
            ours.load_state_dict(theirs.state_dict())
        with self.assertRaisesRegex(zinf.ZinfError, "before zinf.prepare"):
            ours.state_dict(tensors=True)


class ToTorch(MomentsCase):
    def test_torch_goes_on_with_the_losses_of_torch_alone(self) -> None:
        for name, make in MAKES.items():
            whole = models.model()
            theirs = make(whole)
            models.train(whole, theirs, steps=5)
            torchs = models.train(whole, theirs, steps=5)
            with self.subTest(optimizer=name):
                module = models.model()
                with prepared(module, make(module), **models.NVME) as (
                    module,
                    optimizer,
                    _,
                ):
                    models.train(module, optimizer, steps=5)
                    weights = module.state_dict()
                    state = optimizer.state_dict(tensors=True)
                    self.assertEqual(optimizer.state_dict()["state"], {})
                other = models.model()
                other.load_state_dict(weights)
                stock = make(other)
                stock.load_state_dict(state)
                ours = models.train(other, stock, steps=5)
                for mine, wanted in zip(ours, torchs):  # ten steps of two implementations
                    self.assertLessEqual(abs(mine - wanted), 1e-5 * abs(wanted))

    def test_there_is_none_before_the_first_step(self) -> None:
        with prepared(models.model()) as (_, optimizer, _):
            self.assertEqual(optimizer.state_dict(tensors=True)["state"], {})


class Weights(MomentsCase):
    def test_that_are_written_keep_the_state(self) -> None:
        for settings in PLACES:
            with (
                self.subTest(**settings),
                prepared(models.model(), **settings) as (module, optimizer, engine),
            ):
                models.train(module, optimizer, steps=3)
                before = optimizer.state_dict(tensors=True)
                weights = {name: value * 0.5 for name, value in module.state_dict().items()}
                module.load_state_dict(weights)
                self.assert_same(optimizer.state_dict(tensors=True), before)
                self.assertTrue(torch.equal(module.state_dict()["norm.bias"], weights["norm.bias"]))
                with engine.writable(), torch.no_grad():
                    for item in module.parameters():
                        item.mul_(2)
                self.assert_same(optimizer.state_dict(tensors=True), before)
                self.assertEqual(engine.session.update_count, 3)
                models.train(module, optimizer, steps=1)

    def test_that_are_written_reset_the_state_on_request(self) -> None:
        for settings in PLACES:
            with (
                self.subTest(**settings),
                prepared(models.model(), **settings) as (module, optimizer, engine),
            ):
                models.train(module, optimizer, steps=3)
                with engine.writable(module.norm, keep_state=False), torch.no_grad():
                    module.norm.bias.add_(1)
                names = [name for name, _ in module.named_parameters()]
                state = optimizer.state_dict(tensors=True)["state"]
                self.assertFalse(state[names.index("norm.bias")]["exp_avg"].any())
                self.assertTrue(state[names.index("blocks.0.up.weight")]["exp_avg"].any())
                engine.keeps_state = False
                module.load_state_dict(module.state_dict())
                for entry in optimizer.state_dict(tensors=True)["state"].values():
                    self.assertFalse(entry["exp_avg"].any() or entry["exp_avg_sq"].any())

    def test_of_bfloat16_keep_moments_and_the_master_follows(self) -> None:
        module = models.model().to(torch.bfloat16)
        with prepared(module, models.adamw(module), **models.NVME) as (
            module,
            optimizer,
            engine,
        ):
            models.train(module, optimizer, steps=3)
            before = optimizer.state_dict(tensors=True)
            module.load_state_dict(module.state_dict())
            self.assert_same(optimizer.state_dict(tensors=True), before)
            slot = module.norm.weight._zinf
            master = torch.empty(slot.shape)
            engine.session.state_read(
                slot.index, zinf.StateKind.MASTER, master.data_ptr(), master.numel()
            )
            self.assertTrue(torch.equal(master, module.state_dict()["norm.weight"].float()))
