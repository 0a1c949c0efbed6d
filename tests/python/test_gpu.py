# SPDX-License-Identifier: Apache-2.0
"""A model whose parameters and gradients lie in the memory of a fake GPU.

Goal: figures and parameters are those of the CPU, bit by bit, in each order of the fake's streams
and with memory for all units or for three; failures are exceptions that say what to do.
Method: a real zinfd and zinf-gpu on the fake CUDA driver, a process for each rank, and the same
run on the CPU beside it. No GPU is used.
"""

from __future__ import annotations

import functools
import unittest
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import gpu_house
import house
import torch_models as models
from gpu_house import CHUNK, THREE, ZERO3, prepared, run

STEPS = 4

setUpModule, tearDownModule = gpu_house.start, gpu_house.stop


def train_rank(
    send: Any, device: str, streams: int, shape: dict[str, Any], loop: dict[str, Any], **_: Any
) -> None:
    settings = dict(loop.pop("settings", {}))
    dtype = loop.pop("dtype", None)
    module = models.model(count=5, **shape)
    if dtype is not None:
        module.to(dtype)
    module, optimizer, engine = prepared(module, device, streams, **settings)
    numbers = models.train(module, optimizer, ranks=(engine.session.rank,), **loop)
    values = models.values(module)
    stats = engine.session.gpu_stats() if device == "cuda" else None
    chunks = 0 if stats is None else stats.param_budget_bytes // CHUNK
    wrong = engine.device.wrong_reads() if device == "cuda" else []
    assert not wrong, wrong
    figures = None if stats is None else (stats.to_gpu_count, stats.hit_count, chunks)
    engine.close()
    send((numbers, values, figures))


def train(device: str, *, fake: str = "", ranks: int = 1, streams: int = 0, **plan: Any) -> Any:
    """Train. plan: shape of the model, and the loop. Return losses, parameters, counts."""
    job = plan.pop("job", "")
    shape = plan.pop("shape", {})
    loop = {"steps": STEPS, "clip": 1.0, **plan}
    return run(train_rank, device, streams, shape, loop, ranks=ranks, fake=fake, job=job)


@functools.cache
def reference(key: str) -> Any:
    """Return what the CPU computes in a case of CASES, of the job settings alone."""
    plan = dict(PLANS[key])
    return train("cpu", **plan)


PLANS: dict[str, dict[str, Any]] = {
    "one": {"settings": ZERO3},
    "two": {"settings": ZERO3, "ranks": 2},
    "untied": {"settings": ZERO3, "shape": {"is_tied": False, "checkpointing": False}},
    "bf16": {"settings": {**ZERO3, "grad_dtype": "float32"}, "dtype": torch.bfloat16},
    "micro": {"settings": {**ZERO3, "gradient_accumulation_steps": 2}, "accumulation": 2},
    "early": {"settings": {**ZERO3, **models.NVME, "update_early": True}, "clip": 0.0},
}
# Plan, order of the fake's streams, streams of the trainer, more settings.
CASES: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
    ("one", "eager", 0, {"strategy": "ddp"}),
    ("one", "late", 0, {}),
    ("one", "late", 3, THREE),
    ("one", "shuffled:1", 3, {**THREE, **models.NVME}),
    ("one", "shuffled:2", 0, {**THREE, "strategy": "zero2"}),
    ("two", "eager", 0, THREE),
    ("two", "late", 0, {}),
    ("two", "shuffled:3", 2, THREE),
    ("untied", "late", 0, THREE),
    ("untied", "shuffled:4", 3, {}),
    ("bf16", "shuffled:5", 2, THREE),
    ("micro", "late", 0, THREE),
    ("micro", "shuffled:6", 2, models.NVME),
    ("early", "late", 2, THREE),
)


class Bits(unittest.TestCase):
    def assert_same(self, ours: Any, other: Any) -> None:
        for (numbers, values, _), (wanted, expected, _) in zip(ours, other):
            self.assertEqual(numbers, wanted)
            self.assertTrue(models.is_same(values, expected))

    def test_are_those_of_the_cpu(self) -> None:
        for plan, order, streams, more in CASES:
            with self.subTest(plan=plan, order=order, streams=streams, **more):
                settings = {**PLANS[plan]["settings"], **more}
                made = {**PLANS[plan], "settings": settings, "streams": streams}
                ours = train("cuda", fake=f"order={order}", **made)
                self.assert_same(ours, reference(plan))
                copies, hits, chunks = ours[0][2]
                self.assertGreater(copies, 0)
                if "gpu_param_budget_bytes" in more:
                    self.assertEqual(chunks, 4)
                else:
                    self.assertEqual(chunks, 8 if plan == "untied" else 7)
                    self.assertGreater(hits, 0)

    def test_are_those_of_the_cpu_with_no_sync(self) -> None:
        plan = {**PLANS["micro"], "has_no_sync": True}
        ours = train("cuda", fake="order=late", **plan)
        self.assert_same(ours, reference("micro"))

    def test_of_a_job_that_moves_from_the_gpu_to_the_cpu_and_back(self) -> None:
        for first, second in (("cuda", "cpu"), ("cpu", "cuda")):
            with self.subTest(first=first):
                job = f"moves-{first}"
                numbers = []
                for device in (first, second):
                    (found,) = run(train_part, device, job=job, fake="order=late")
                    numbers += found[0]
                wanted = reference("one")[0]
                self.assertEqual(numbers, wanted[0][::2])
                self.assertTrue(models.is_same(found[1], wanted[1]))


def train_part(send: Any, device: str) -> None:
    """Train two steps on from where the job is."""
    module, optimizer, engine = prepared(models.model(count=5), device, **ZERO3)
    losses = []
    for step in range(engine.committed_step, engine.committed_step + STEPS // 2):
        loss = models.loss_of(module, models.batch(step))
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    values = models.values(module)
    engine.close()
    send((losses, values))


# ---- failures ----


def fail(send: Any, settings: dict[str, Any], steps: int) -> None:
    try:
        module, optimizer, engine = prepared(models.model(count=5), "cuda", **settings)
        models.train(module, optimizer, steps=steps)
    except Exception as error:
        send((type(error).__name__, str(error)))
    else:
        send(("", ""))
        engine.close()


class Failures(unittest.TestCase):
    def failure(self, fake: str, steps: int = 2, **settings: Any) -> tuple[str, str]:
        return run(fail, settings, steps, fake=fake)[0]

    def test_of_the_driver_are_exceptions(self) -> None:
        for fake, text in (
            ("fail=cuEventRecord:9:700", "ILLEGAL_ADDRESS (700)"),
            ("fail=cuMemAddressReserve:1:2", "OUT_OF_MEMORY (2)"),
            ("sticky=cuMemcpyHtoDAsync:5:719", "CUDA error 719"),
        ):
            with self.subTest(fake):
                kind, found = self.failure(f"order=late,{fake}")
                self.assertEqual(kind, "GpuFailed", found)
                self.assertIn(text, found)

    def test_of_a_small_budget_name_the_figure(self) -> None:
        kind, text = self.failure("", gpu_param_budget_bytes=CHUNK)
        self.assertEqual(kind, "NoSpace", text)
        self.assertIn("from 2 MiB (1 chunks) to at least 6 MiB (3 chunks)", text)
        self.assertIn("gpu_param_budget_bytes", text)
        kind, text = self.failure(
            "", gpu_grad_budget_bytes=3 * CHUNK, gradient_accumulation_steps=2
        )
        self.assertEqual(kind, "NoSpace", text)
        self.assertIn("grad_budget_bytes from 6 MiB to 14 MiB", text)
        kind, text = self.failure("", gpu_grad_budget_bytes=1, gpu_param_budget_bytes=3 * CHUNK)
        self.assertIn("The settings are gpu_param_budget_bytes", text)

    def test_of_a_small_budget_of_cpu_memory_name_no_gpu(self) -> None:
        kind, text = self.failure("", param_budget_bytes=4096, **models.NVME)
        self.assertEqual(kind, "NoSpace", text)
        self.assertIn("param_budget_bytes is 4 KiB", text)
        self.assertNotIn("gpu_param_budget_bytes", text)

    def test_without_a_gpu(self) -> None:
        kind, text = self.failure("no=vmm")
        self.assertEqual(kind, "Unsupported", text)
        self.assertIn("or compute on the CPU with device='cpu' (ZINF_DEVICE=cpu)", text)
        with mock.patch.object(gpu_house, "socket", house.socket_path):
            kind, text = self.failure("")
        self.assertEqual(kind, "GpuFailed", text)
        self.assertIn("zinfd has no GPU", text)
        self.assertIn("or compute on the CPU with device='cpu' (ZINF_DEVICE=cpu)", text)


if __name__ == "__main__":
    unittest.main()
