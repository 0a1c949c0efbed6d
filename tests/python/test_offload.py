# SPDX-License-Identifier: Apache-2.0
"""zinf.offload.activations(): what autograd saves lies in the daemon.

Goal: training has the same bits as without it, the process needs a fraction of the memory, and a
store without room is an exception, after which training goes on. Method: the small transformer,
plain layers with unusual strides beside it, and a process whose peak memory is read.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import unittest
from typing import Any

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import house
import torch_models as models
import zinf
from test_training import prepared
from torch import nn

activations: Any = zinf.offload.activations
SMALL = {"budget_bytes": "4M", "min_bytes": 1}


class Saves(nn.Module):
    """Operations that save tensors of unusual strides and kinds, and outputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.t() @ x  # a transposed view
        one, two = y.chunk(2, -1)  # parts of a tensor
        z = one.exp() * two.sigmoid()
        z = z * z[:, :1].expand_as(z)  # repeated without memory
        z = z * z.sum(0, keepdim=True).expand(z.shape)
        z = z.masked_fill(z > z.mean(), 0.5)
        image = z.reshape(1, 2, 8, -1).to(memory_format=torch.channels_last)
        image = torch.tanh(image) * image
        wave = torch.fft.fft(image.sum((0, 1)))
        return (wave.conj() * wave).real.sum() + torch.relu(z)[z.argmax(0)].sum()


def run(module: Any, optimizer: Any, **options: Any) -> list[Any]:
    """Train with dropout, with activations outside if there are options."""
    torch.manual_seed(4)
    found: list[Any] = []
    for number in range(3):
        if options:
            with activations(module, **options) as done:
                loss = models.loss_of(module, models.batch(number))
            assert done.tensor_count > (20 if module.checkpointing is None else 3)
        else:
            loss = models.loss_of(module, models.batch(number))
        loss.backward()
        found.append(loss.item())
        found.append(float(torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)))
        optimizer.step()
        optimizer.zero_grad()
    return [*found, *models.values(module)]


class Bits(unittest.TestCase):
    def test_are_those_of_training_without_it(self) -> None:
        for checkpointing in (None, False, True):
            first: Any = None
            for settings in ({}, models.NVME):
                for options in ({}, SMALL, {"budget_bytes": "256K", "min_bytes": 1}):
                    module = models.model(checkpointing=checkpointing, dropout=0.1)
                    with (
                        self.subTest(checkpointing=checkpointing, **options, **settings),
                        prepared(module, **settings) as (_, optimizer, engine),
                    ):
                        found = run(module, optimizer, **options)
                        first = first or found
                        for mine, other in zip(found, first):
                            same = torch.equal(torch.as_tensor(mine), torch.as_tensor(other))
                            self.assertTrue(same)
                        self.assert_gone(engine)

    def assert_gone(self, engine: Any) -> None:
        """All tensors of the daemon are deleted with their graphs."""
        store = zinf.offload._stores.get(engine.session)
        if store is not None:
            gc.collect()
            store.sweep()
            self.assertEqual(store.count, 0)

    def test_are_kept_for_any_strides(self) -> None:
        layers = Saves()
        x = torch.randn(24, 32, generator=torch.Generator().manual_seed(1)) / 4
        plain = x.clone().requires_grad_()
        layers(plain).backward()
        for least in (1, "1K", "1M"):
            with prepared(models.model(count=1)) as (module, _, engine):
                mine = x.clone().requires_grad_()
                with activations(module, budget_bytes="4M", min_bytes=least) as done:
                    loss = layers(mine)
                self.assertEqual(done.tensor_count > 0, least != "1M")
                loss.backward(retain_graph=True)
                self.assertTrue(torch.equal(mine.grad, plain.grad))
                loss.backward()  # a graph may be used twice
                self.assertTrue(torch.equal(mine.grad, 2 * plain.grad))
                del loss
                self.assert_gone(engine)

    def test_are_those_of_the_moment_of_saving(self) -> None:
        for least in (1, "1M"):
            with prepared(models.model(count=1)):
                x = torch.full((8, 8), 3.0, requires_grad=True)
                with activations(budget_bytes="1M", min_bytes=least):
                    factor = x * 1
                    y = (factor * factor).sum()
                    factor.detach().zero_()  # torch alone would refuse this backward
                y.backward()
                self.assertTrue(torch.equal(x.grad, torch.full((8, 8), 6.0)))
                other = nn.Linear(4, 4)  # a parameter is not copied: a write to it is seen
                with activations(budget_bytes="1M", min_bytes=least):
                    z = torch.mul(other.weight, torch.ones(4, 4, requires_grad=True)).sum()
                with torch.no_grad():
                    other.weight.zero_()
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    z.backward()


COUNT = 40  # tensors of 1 MiB


def chain(x: torch.Tensor, count: int = COUNT) -> torch.Tensor:
    """Save `count` tensors of 1 MiB."""
    for _ in range(count):
        x = torch.tanh(x)
    return x.sum()


def measure(send: Any, is_outside: bool) -> None:
    """Send by how many bytes a forward and backward raise the peak memory, and the gradient."""
    ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: what is freed leaves the process
    module, _ = zinf.prepare(models.model(count=1), None, house.config())
    x = torch.full((1 << 18,), 0.5, requires_grad=True)
    chain(torch.full((1 << 18,), 0.5, requires_grad=True), 1).backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if is_outside:
        with activations(module, budget_bytes="4M"):
            loss = chain(x)
    else:
        loss = chain(x)
    loss.backward()
    send((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
    send(x.grad.sum().item())
    zinf.engine_of(module).close(delete_job=True)


class Memory(unittest.TestCase):
    def test_is_free_while_activations_are_outside(self) -> None:
        grown = []
        for is_outside in (False, True):
            process = models.Process({}, measure, is_outside)
            grown.append(list(process.values()))
            self.assertEqual(process.finish(), 0)
        self.assertEqual(grown[0][1], grown[1][1])
        self.assertGreater(grown[0][0], COUNT * 0.9 * (1 << 20))
        self.assertLess(grown[1][0], COUNT * 0.5 * (1 << 20))


class Refusals(unittest.TestCase):
    def test_of_a_full_store_let_training_go_on(self) -> None:
        plain = models.model(count=1)
        torchs = models.train(plain, models.adamw(plain), steps=2)
        with prepared(models.model(count=1)) as (module, optimizer, _):
            x = torch.full((1 << 18,), 0.5, requires_grad=True)
            with self.assertRaises(zinf.NoSpace), activations(module, budget_bytes="4M"):
                chain(x, 100)  # the store of the tests has 64 MiB
            gc.collect()
            with activations(module, budget_bytes="4M") as done:
                loss = chain(x)
            self.assertEqual(done.tensor_count, COUNT)
            loss.backward()
            for mine, other in zip(models.train(module, optimizer, steps=2), torchs):
                self.assertAlmostEqual(mine, other, delta=1e-5 * other)

    def test_of_arguments(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "not in zinf"):
            activations(models.model()).__enter__()
        with (
            prepared(models.model(count=1)) as (module, _, _),
            prepared(models.model(count=1)),
            self.assertRaisesRegex(zinf.InvalidArgument, "has 2 models.*name the model"),
        ):
            activations().__enter__()
        with prepared(models.model(count=1)) as (module, _, _):
            for text, options in (
                ("budget_bytes is 'much'", {"budget_bytes": "much"}),
                ("min_bytes is -1", {"min_bytes": -1}),
            ):
                with self.assertRaisesRegex(zinf.InvalidArgument, text):
                    activations(module, **options).__enter__()
            x = torch.ones(1 << 18, requires_grad=True)
            with (
                self.assertRaisesRegex(zinf.NoSpace, "give at least twice"),
                activations(module, budget_bytes="64K", min_bytes="8K"),
            ):
                x.exp()
            with self.assertRaisesRegex(zinf.InvalidArgument, "same to all blocks"):
                activations(module, budget_bytes="1M").__enter__()


if __name__ == "__main__":
    unittest.main()
