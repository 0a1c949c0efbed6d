# SPDX-License-Identifier: Apache-2.0
"""The ways into zinf on a fake GPU: DeepSpeed's and FSDP2's calls, and unusual modules.

Goal: they train as on the CPU; without a named device they choose the GPU where torch has one.
Method: as in test_gpu.py.
"""

from __future__ import annotations

import copy
import os
import unittest
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import fake_cuda
import gpu_house
import house
import torch_models as models
import zinf
from gpu_house import CHUNK, THREE, ZERO3, prepared, refused, run
from zinf import accelerator as accelerators
from zinf.module import device as devices

setUpModule, tearDownModule = gpu_house.start, gpu_house.stop


def initialize(send: Any) -> None:
    fake_cuda.install()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "nvme"},
            "offload_param": {"device": "nvme"},
        },
    }
    losses = []
    for device in ("cpu", "cuda"):
        engine, *_ = zinf.initialize(model=models.model(), config=config, device=device)
        found = []
        for step in range(2):
            loss = models.loss_of(engine, models.batch(step))
            engine.backward(loss)
            engine.step()
            found.append(loss.item())
        assert engine.zinf.device.is_gpu == (device == "cuda")
        assert engine.device == engine.zinf.device.place
        folder = house.folder("saves")
        engine.save_checkpoint(folder)
        if device == "cuda":
            engine.load_checkpoint(folder)
        losses.append(found)
        engine.zinf.close(delete_job=True)
    assert losses[0] == losses[1], losses
    send("good")


def shard(send: Any) -> None:
    fake_cuda.install(2)
    losses = []
    for device in ("cpu", "cuda"):
        module = models.model(count=4)
        for block in module.blocks:
            zinf.fully_shard(block)
        zinf.fully_shard(module, device=device, gpu_param_budget_bytes=4 * CHUNK)
        optimizer = models.adamw(module)
        losses.append(models.train(module, optimizer, steps=2, clip=1.0))
        engine = zinf.engine_of(module)
        assert engine.device.is_gpu == (device == "cuda")
        engine.close(delete_job=True)
    assert losses[0] == losses[1], losses
    send("good")


def begin_where_torch_has_a_gpu(send: Any, version: str | None) -> None:
    """The device that the two entries choose by themselves."""
    fake_cuda.install()
    found = []
    with (
        mock.patch.object(torch.version, "cuda", version),
        mock.patch.object(torch.cuda, "is_available", return_value=True),
    ):
        config = {"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "AdamW"}}
        engine, *_ = zinf.initialize(model=models.model(), config=config)
        found.append(engine.zinf.device.is_gpu)
        engine.zinf.close(delete_job=True)
        module = models.model()
        zinf.fully_shard(module)
        models.adamw(module)
        sharded = zinf.engine_of(module)
        found.append(sharded.device.is_gpu)
        sharded.close(delete_job=True)
    send(found)


class Scale(torch.autograd.Function):
    """As a kernel of Triton: it takes the addresses of parameters, in backward as well."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x * Scale.values(weight)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * Scale.values(ctx.weight), (gradient * x).sum(0)

    @staticmethod
    def values(weight: torch.Tensor) -> torch.Tensor:
        return devices.from_address(weight.data_ptr(), weight.shape, torch.float32, 1, 0)


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Scale.apply(x, self.weight)


def end_blocks_in_a_function(send: Any) -> None:
    plain = torch.nn.Sequential(*(Scaled() for _ in range(6)))
    module, _, engine = prepared(copy.deepcopy(plain), "cuda", **ZERO3, **THREE)
    gradients = []
    for model in (plain, module):
        x = torch.ones(4, 64, requires_grad=True)
        model(x).sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    engine.discard()

    with engine.gathered("0"):
        loss = Scale.apply(torch.ones(4, 64), module[0].weight).sum()
    refused(zinf.ZinfError, "data_ptr.*'0.weight' in backward", loss.backward)
    engine.discard()
    assert module[0].weight.data_ptr() == engine.session.gpu_param_address(0)
    engine.close(delete_job=True)
    send("good")


class Half(torch.nn.Module):
    """A block with an expert that gets no tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def train_with_unused(send: Any) -> None:
    model = torch.nn.Sequential(*(Half() for _ in range(5)))
    module, optimizer, engine = prepared(model, "cuda", find_unused_parameters=True, **ZERO3)
    for _ in range(2):
        module(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    engine.close(delete_job=True)
    send("good")


class Entries(unittest.TestCase):
    def test_of_blocks_with_unused_parameters(self) -> None:
        run(train_with_unused, fake="order=late")

    def test_of_functions_that_take_addresses(self) -> None:
        run(end_blocks_in_a_function, fake="order=late")

    def test_of_deepspeed(self) -> None:
        run(initialize, fake="order=late")

    def test_of_fsdp2(self) -> None:
        run(shard, fake="order=shuffled:7")


class Presence(unittest.TestCase):
    """Where a script does not name the device."""

    def test_is_that_of_a_gpu_of_nvidia(self) -> None:
        for version, has_device, device, expected in (
            ("12.4", True, "", "cuda"),
            ("12.4", True, "cuda:1", "cuda"),
            ("12.4", True, "cpu", "cpu"),
            ("12.4", False, "", "cpu"),
            (None, True, "", "cpu"),  # ROCm
        ):
            with (
                self.subTest(version=version, has_device=has_device, device=device),
                mock.patch.object(torch.version, "cuda", version),
                mock.patch.object(torch.cuda, "is_available", return_value=has_device),
                mock.patch.dict(os.environ, ZINF_DEVICE=device),
                mock.patch.object(accelerators, "_accelerator", None),
            ):
                found = accelerators.get_accelerator()
                self.assertEqual(found._name, expected)
                self.assertEqual(devices.has_cuda(), version is not None and has_device)
                if expected == "cuda":
                    self.assertTrue(found.is_available())

    def test_of_the_entries_of_deepspeed_and_fsdp2(self) -> None:
        for version in (None, "12.4"):
            (found,) = run(begin_where_torch_has_a_gpu, version)
            self.assertEqual(found, [version is not None] * 2)


if __name__ == "__main__":
    unittest.main()
