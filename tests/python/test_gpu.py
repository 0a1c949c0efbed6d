# SPDX-License-Identifier: Apache-2.0
"""A model whose parameters and gradients lie in the memory of a fake GPU.

Goal: figures and parameters are those of the CPU, bit by bit, in each order of the fake's streams
and with memory for all units or for three; what does not work is refused with what to do.
Method: a real zinfd and zinf-gpu on the fake CUDA driver, a process for each rank, and the same
run on the CPU beside it. No GPU is used.
"""

from __future__ import annotations

import copy
import functools
import itertools
import os
import pickle
import subprocess
import unittest
from typing import Any, Callable
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import fake_cuda
import house
import torch_models as models
import zinf
from zinf import accelerator as accelerators
from zinf import checkpoint, scratch
from zinf.module import device as devices
from zinf.module import parameter, units

CHUNK = fake_cuda.CHUNK
STEPS = 4
# Of five blocks, an embedding and the rest, which has a chunk of its own.
THREE = {"gpu_param_budget_bytes": 4 * CHUNK}
ZERO3: dict[str, Any] = {"strategy": "zero3"}

_daemon: subprocess.Popen[bytes] | None = None
_numbers = itertools.count()


def setUpModule() -> None:
    global _daemon  # noqa: PLW0603 - one daemon for the file
    if not os.path.exists(fake_cuda.DRIVER):
        raise unittest.SkipTest(f"there is no {fake_cuda.DRIVER}: make check-python builds it")
    sets = (*house.SETS, "gpu.enable=yes", f"gpu.driver={fake_cuda.DRIVER}", "gpu.reserve=none")
    _daemon = house.start_daemon("gpu", *sets, environment={"ZINF_FAKE_GPU": "gpus=2"})


def tearDownModule() -> None:
    if _daemon is not None:
        _daemon.terminate()
        _daemon.wait(60)


def socket() -> str:
    return os.path.join(house.path_of("gpu"), "zinfd.sock")


def run(
    function: Callable[..., Any], *words: Any, ranks: int = 1, fake: str = "", job: str = ""
) -> list[Any]:
    """Run a function as ranks of a job. Return the first value that each sent."""
    job = job or f"gpu-{next(_numbers)}"
    processes = []
    for rank in range(ranks):
        environment = house.rank_environment(rank, ranks, job, socket())
        environment["ZINF_FAKE_GPU"] = "gpus=2" + (f",{fake}" if fake else "")
        processes.append(models.Process(environment, function, *words))
    found = [list(process.values()) for process in processes]
    codes = [process.finish() for process in processes]
    if any(codes):
        raise AssertionError(f"ranks ended with {codes}")
    return [values[0] for values in found]


def prepared(
    module: Any, device: str, streams: int = 0, optimizer: Any = None, **settings: Any
) -> tuple[Any, Any, Any]:
    """Prepare a model in this process. With "cuda" it is the fake."""
    fake_cuda.install(streams)
    optimizer = models.adamw(module) if optimizer is None else optimizer
    settings = {"socket_path": socket(), "timeout": 20, "device": device, **settings}
    if device == "cuda" and streams:
        fake_cuda.watch(module)
    module, optimizer = zinf.prepare(module, optimizer, **settings)
    engine = zinf.engine_of(module)
    if device == "cuda":
        engine.device.units = engine.units
    return module, optimizer, engine


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


# ---- values ----


def look_at_values(send: Any, folder: str) -> None:
    """What reads and writes parameters, with memory for three units."""
    module, optimizer, engine = prepared(models.model(count=5), "cuda", **ZERO3, **THREE)
    plain = models.model(count=5)
    assert engine.device.param_bytes == 4 * sum(item.numel() for item in plain.parameters())
    models.train(plain, models.adamw(plain), steps=1)
    for name, value in models.model(count=5).state_dict().items():
        assert torch.equal(module.state_dict()[name], value), name
    weight = module.blocks[0].mix.weight
    assert weight.sum().item() == models.model(count=5).blocks[0].mix.weight.sum().item()
    assert torch.equal(copy.deepcopy(module).head.weight, models.model(count=5).head.weight)
    with mock.patch.object(parameter, "plain", wraps=parameter.plain) as copies:
        assert torch.equal(pickle.loads(pickle.dumps(weight)), weight)
    assert [call.kwargs for call in copies.call_args_list] == [{"is_on_host": True}]
    assert module.to("cpu").blocks[0].mix.weight is weight
    assert weight.storage().device == engine.device.place
    assert weight.data_ptr() == engine.session.gpu_param_address(weight._zinf.index)

    # New values come by the CPU, also into units that lie in GPU memory.
    other = models.values(plain)
    with engine.gathered(module.blocks[1]):
        pass
    module.load_state_dict(plain.state_dict())
    assert models.is_same(models.values(module), other)
    with zinf.zero.GatheredParameters(module.norm.weight, modifier_rank=0):
        module.norm.weight.data.fill_(2.0)
    assert module.norm.weight.sum().item() == 2.0 * models.WIDTH
    checkpoint.save_model(module, folder, engine.named_tensors())
    module.load_state_dict(models.model(count=5).state_dict())
    checkpoint.load_model(module, folder)
    assert module.norm.weight.sum().item() == 2.0 * models.WIDTH
    assert torch.equal(module.blocks[4].up.weight, plain.blocks[4].up.weight)

    # The step that follows is torch's.
    models.train(module, optimizer, steps=1)
    state = optimizer.state_dict(tensors=True)["state"]
    assert state[0]["exp_avg"].device.type == "cpu"
    engine.close(delete_job=True)
    send("good")


def look_at_refusals(send: Any) -> None:
    module, optimizer, engine = prepared(models.model(), "cuda")
    refused(zinf.Unsupported, "load_state_dict", engine.writable().__enter__)
    refused(zinf.Unsupported, "tensors of the CPU", zinf.offload.activations().__enter__)
    refused(zinf.ReadOnlyParameter, "read-only", lambda: module.norm.weight.fill_(1))
    refused(zinf.ReadOnlyParameter, "device to zinf.prepare", module.double)
    models.train(module, optimizer, steps=1)
    loss = models.loss_of(module, models.batch(0))
    loss.backward(retain_graph=True)
    optimizer.step()
    refused(RuntimeError, "earlier step", loss.backward)
    optimizer.zero_grad()
    models.train(module, optimizer, steps=1)
    engine.close(delete_job=True)
    send("good")


def refused(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    with unittest.TestCase().assertRaisesRegex(kind, text):
        call()


def restore_a_snapshot(send: Any) -> None:
    module, optimizer, engine = prepared(models.model(), "cuda", job="restored", **models.NVME)
    models.train(module, optimizer, steps=2)
    engine.snapshot("kept")
    expected = models.train(module, optimizer, steps=2)
    scratch.restore(engine, "restored/kept")
    assert models.train(module, optimizer, steps=2) == expected
    engine.close(delete_job=True)
    send("good")


def restore_without_room(send: Any) -> None:
    """The second session of the process finds no GPU memory."""
    module, optimizer, engine = prepared(models.model(), "cuda", job="full", **models.NVME)
    models.train(module, optimizer, steps=1)
    engine.snapshot("kept")
    error = zinf.NoSpace("GPU-0 has room for 1 GiB of this rank")
    with mock.patch.object(zinf.Session, "materialize", side_effect=error):
        text = "room for 1 GiB.*gpu_param_budget_bytes.*In a new process"
        refused(zinf.NoSpace, text, lambda: scratch.restore(engine, "full/kept"))
    models.train(module, optimizer, steps=1)
    engine.close(delete_job=True)
    send("good")


class Buffered(torch.nn.Module):
    """Parameters with a buffer that two modules share, and integers."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.count = torch.nn.Parameter(torch.zeros(2, dtype=torch.int64), requires_grad=False)
        self.register_buffer("table", torch.ones(4))
        self.norm.register_buffer("table", self.table)


class Values(unittest.TestCase):
    def test_can_be_read_and_written(self) -> None:
        run(look_at_values, house.folder("values"), fake="order=late")

    def test_are_refused_by_name(self) -> None:
        run(look_at_refusals, fake="order=shuffled:9")

    def test_return_to_a_snapshot_in_one_process(self) -> None:
        run(restore_a_snapshot, fake="order=late")

    def test_do_not_return_where_the_gpu_has_no_room_for_both(self) -> None:
        run(restore_without_room, fake="order=late")

    def test_beside_zinf_are_moved_to_the_device(self) -> None:
        model = Buffered()
        managed = [*model.linear.parameters(), *model.norm.parameters()]
        former = dict(model.named_buffers())
        cuda = devices.Cuda(0)
        cuda.place = torch.device("cpu")
        cuda.move_others(model, managed)
        for name, item in model.named_buffers():
            self.assertIs(item, former[name])

        copies: dict[int, Any] = {}

        def copy_of(item: Any, place: Any) -> Any:
            self.assertEqual(place, torch.device("cuda", 1))
            return copies.setdefault(item.data_ptr(), item.detach().clone())

        cuda.place = torch.device("cuda", 1)
        data = model.count.data_ptr()
        with mock.patch.object(torch.Tensor, "to", copy_of):
            cuda.move_others(model, managed)
        self.assertEqual(len(copies), 5)  # table, mean, variance, count of batches; integers
        for name, item in model.named_buffers():
            self.assertIs(item, copies[former[name].data_ptr()], name)
        self.assertEqual(model.count.data_ptr(), copies[data].data_ptr())
        self.assertIs(model.table, model.norm.table)

    def test_of_another_gpu_are_moved(self) -> None:
        """A tensor of another GPU is moved, one of this GPU stays."""
        places = {"there": torch.device("cuda", 1), "here": torch.device("cuda", 0)}
        module = torch.nn.Module()
        items = {name: mock.Mock(device=place) for name, place in places.items()}
        module._buffers.update(items)
        cuda = devices.Cuda(0)
        cuda.move_others(module, [])
        items["there"].to.assert_called_once_with(cuda.place)
        items["here"].to.assert_not_called()
        self.assertIs(module._buffers["there"], items["there"].to.return_value)
        self.assertIs(module._buffers["here"], items["here"])

    def test_on_two_gpus_are_refused(self) -> None:
        plan = units.Plan("block", [torch.nn.Module()])
        for name, index in (("a", 0), ("b", 0), ("c", 1)):
            item = mock.Mock(device=torch.device("cuda", index), dtype=torch.float32)
            plan.parameters.append((name, item))
        with self.assertRaisesRegex(zinf.InvalidArgument, "'a' is on cuda:0, and 'c' on cuda:1"):
            units.check_parameters([plan], None, torch.device("cuda", 0))
        del plan.parameters[2]
        self.assertIs(units.check_parameters([plan], None, torch.device("cuda", 1)), torch.float32)


# ---- other ways in ----


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
        with mock.patch(f"{__name__}.socket", house.socket_path):
            kind, text = self.failure("")
        self.assertEqual(kind, "GpuFailed", text)
        self.assertIn("zinfd has no GPU", text)
        self.assertIn("or compute on the CPU with device='cpu' (ZINF_DEVICE=cpu)", text)


class Budgets(unittest.TestCase):
    """What libzinf is asked for, with a driver that is not there."""

    def asked(self, param_bytes: int, free_bytes: int, **settings: Any) -> int:
        session = mock.Mock(config=zinf.Config(**settings))
        cuda = devices.Cuda(1)
        cuda.param_bytes = param_bytes
        free = {1: (free_bytes, 1 << 40)}
        with (
            mock.patch.multiple(cuda, _uuid=lambda: "GPU-1", _stream=lambda: 0),
            mock.patch.object(torch.cuda, "empty_cache") as empty_cache,
            mock.patch.object(torch.cuda, "mem_get_info", free.__getitem__, create=True),
        ):
            cuda.open(session)
        given = session.gpu_open.call_args.kwargs["param_budget_bytes"]
        self.assertEqual(empty_cache.called, not settings)
        return int(given)

    def test_leave_half_of_the_free_memory_to_torch(self) -> None:
        self.assertEqual(self.asked(500, 1000), 0)
        self.assertEqual(self.asked(501, 1000), 500)
        self.assertEqual(self.asked(5000, 1000), 500)
        self.assertEqual(self.asked(5000, 1000, gpu_param_budget_bytes=700), 700)


class Choice(unittest.TestCase):
    """How the device is found, without a driver."""

    def found(self, device: str | None = None, **parameters: str) -> str:
        given = [mock.Mock(device=torch.device(name)) for name in parameters.values()]
        return str(devices.find(zinf.Config(device=device), given).place)

    def test_is_that_of_the_model_unless_it_is_named(self) -> None:
        with (
            mock.patch.object(torch.version, "cuda", "12.4"),
            mock.patch.multiple(
                torch.cuda,
                is_available=lambda: True,
                device_count=lambda: 4,
                current_device=lambda: 0,
                set_device=lambda index: None,
            ),
        ):
            self.assertEqual(self.found(), "cpu")
            self.assertEqual(self.found(a="cpu", b="cuda:1"), "cuda:1")
            self.assertEqual(self.found("cpu", a="cuda:1"), "cpu")
            self.assertEqual(self.found("cuda:2", a="cpu"), "cuda:2")
            self.assertEqual(self.found("cuda"), "cuda:0")
            with mock.patch.dict(os.environ, LOCAL_RANK="3"):
                self.assertEqual(self.found("cuda"), "cuda:3")
            with self.assertRaisesRegex(zinf.InvalidArgument, "cuda:4.*4 GPUs"):
                self.found("cuda:4")

    def test_without_cuda_says_what_to_do(self) -> None:
        for version, text in ((None, "without CUDA.*ZINF_DEVICE=cpu"), ("12.4", "finds no GPU")):
            with (
                mock.patch.object(torch.cuda, "is_available", return_value=False),
                mock.patch.object(torch.version, "cuda", version),
                self.assertRaisesRegex(zinf.Unsupported, text),
            ):
                self.found("cuda")

    def test_of_words_and_variables(self) -> None:
        self.assertEqual(zinf.Config.load(environ={"ZINF_DEVICE": "cuda:1"}).device, "cuda:1")
        self.assertEqual(zinf.Config(device=torch.device("cuda", 1)).device, "cuda:1")
        with self.assertRaisesRegex(zinf.InvalidArgument, "device is 'gpu': cpu, cuda or cuda:N"):
            zinf.Config(device="gpu")

    def test_of_a_framework_is_the_same(self) -> None:
        cpu = torch.device("cpu")
        for place in (cpu, torch.device("cpu", 0)):
            self.assertEqual(devices.settle(zinf.Config(), place, "x").device, "cpu")
        self.assertEqual(
            devices.settle(zinf.Config(), torch.device("cuda", 1), "x").device, "cuda:1"
        )
        self.assertEqual(devices.settle(zinf.Config(device="cpu"), cpu, "x").device, "cpu")
        with self.assertRaisesRegex(zinf.InvalidArgument, "Trainer computes on 'cuda:0'"):
            devices.settle(zinf.Config(device="cpu"), torch.device("cuda", 0), "Trainer")

    def test_of_a_framework_has_the_same_index(self) -> None:
        one = torch.device("cuda", 1)
        with (
            mock.patch.object(devices, "has_cuda", return_value=True),
            mock.patch.object(torch.cuda, "current_device", return_value=1),
            mock.patch.object(torch.cuda, "set_device") as set_device,
        ):
            for name in ("cuda", "cuda:1"):
                self.assertEqual(
                    devices.settle(zinf.Config(device=name), one, "x").device, "cuda:1"
                )
            bare = devices.settle(zinf.Config(device="cuda:1"), torch.device("cuda"), "x")
            self.assertEqual(bare.device, "cuda:1")
            for place in (torch.device("cuda", 0), torch.device("cpu", 0)):
                with self.assertRaisesRegex(zinf.InvalidArgument, f"'cuda:1', but x .*'{place}'"):
                    devices.settle(zinf.Config(device="cuda:1"), place, "x")
            with self.assertRaisesRegex(zinf.InvalidArgument, "cuda:2.*'cuda'"):
                devices.settle(zinf.Config(device="cuda:2"), torch.device("cuda"), "x")
        set_device.assert_not_called()

    def test_of_a_framework_on_the_cpu_says_why(self) -> None:
        with (
            mock.patch.object(torch.version, "cuda", None),
            self.assertRaisesRegex(zinf.Unsupported, "without CUDA"),
        ):
            devices.settle(zinf.Config(device="cuda"), torch.device("cpu"), "x")

    def test_of_a_uuid(self) -> None:
        known = mock.Mock(uuid="0a-1", spec=["uuid", "name"])
        known.name = "H200"
        instance = mock.Mock(uuid="0a-1", spec=["uuid", "name"])
        instance.name = "A100 MIG 1g.5gb"
        older = mock.Mock(spec=["name"])
        for properties, count, local_rank, expected in (
            (known, 2, "0", "GPU-0a-1"),
            (instance, 1, "0", None),
            (older, 1, "", None),
            (older, 2, "1", None),
        ):
            with (
                mock.patch.object(torch.cuda, "get_device_properties", lambda _, p=properties: p),
                mock.patch.object(torch.cuda, "device_count", lambda n=count: n),
                mock.patch.dict(os.environ, LOCAL_RANK=local_rank),
            ):
                self.assertEqual(devices.Cuda(1)._uuid(), expected)
                if properties is older and count == 2:
                    with self.assertRaisesRegex(zinf.Unsupported, "CUDA_VISIBLE_DEVICES=0"):
                        devices.Cuda(0)._uuid()


class Branches(torch.nn.Module):
    """A block whose branches take streams of their own, under watch()."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.left(x) + self.right(x)


def read_on_two_streams(send: Any, turns: int) -> None:
    """Only the order of streams brings values: the host waits for none."""
    blocks = torch.nn.Sequential(*(Branches() for _ in range(5))).requires_grad_(False)
    plain = torch.nn.Sequential(blocks, torch.nn.Linear(64, 1))  # No gradient of a block comes.
    wanted = {
        name: bytes(item.detach().view(torch.uint8).reshape(-1).tolist())
        for name, item in plain.named_parameters()
    }
    module, _, engine = prepared(plain, "cuda", 2, **ZERO3, **THREE)
    cuda = engine.device
    cuda.wanted, cuda.waits = wanted, False
    for _ in range(turns):
        cuda.turn()
    module(torch.ones(4, 64, requires_grad=True)).sum().backward()
    send(cuda.wrong_reads())


def order_in_a_child(send: Any) -> None:
    module, _, engine = prepared(models.model(), "cuda")
    weight = module.blocks[0].mix.weight
    # As torch.cuda in a child.
    no_cuda = mock.Mock(side_effect=RuntimeError("Cannot re-initialize CUDA"))
    with (
        mock.patch.object(engine.session, "_is_forked", True),
        mock.patch.multiple(engine.device, _stream=no_cuda, _is_capturing=no_cuda),
    ):
        refused(zinf.ForkedChild, "forked child", weight.sum)
    engine.close(delete_job=True)
    send("good")


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


class Order(unittest.TestCase):
    """Streams, of the fake driver and seen by a session that records its calls."""

    def test_of_branches_of_a_unit(self) -> None:
        for turns in range(2):
            with self.subTest(turns=turns):
                self.assertEqual(run(read_on_two_streams, turns, fake="order=late"), [[]])

    def test_follows_the_current_stream_of_torch(self) -> None:
        session = mock.Mock(_gpu_stream=0)
        session.gpu_stream.side_effect = lambda stream: setattr(session, "_gpu_stream", stream)
        cuda = devices.Cuda(0)
        with (
            mock.patch.object(cuda, "_stream", side_effect=[0, 0, 7, 7, 0, 0]),
            mock.patch.object(cuda, "_is_capturing", return_value=False) as asked,
        ):
            for is_coming in (False, False, False, False, False, True):
                cuda.order(session, is_coming=is_coming)
        told = [call.args[0] for call in session.gpu_stream.call_args_list]
        self.assertEqual(told, [7, 0])
        self.assertEqual(asked.call_count, 3)  # of the changes, and of the unit

    def test_asks_torch_for_the_number_of_the_stream(self) -> None:
        with mock.patch.object(devices, "_current_stream", lambda index: 10 + index):
            self.assertEqual(devices.Cuda(3)._stream(), 13)
        stream = mock.Mock(cuda_stream=5)
        with (
            mock.patch.object(devices, "_current_stream", None),
            mock.patch.object(torch.cuda, "current_stream", return_value=stream) as asked,
        ):
            self.assertEqual(devices.Cuda(3)._stream(), 5)
        asked.assert_called_once_with(torch.device("cuda", 3))

    def test_of_a_cuda_graph_is_refused(self) -> None:
        cuda = devices.Cuda(0)
        for known, is_coming in ((4, False), (5, True)):
            with (
                mock.patch.object(cuda, "_stream", return_value=5),
                mock.patch.object(cuda, "_is_capturing", return_value=True),
                self.assertRaisesRegex(zinf.Unsupported, "CUDA graphs"),
            ):
                cuda.order(mock.Mock(_gpu_stream=known), is_coming=is_coming)

    def test_in_a_forked_child_is_refused_by_name(self) -> None:
        run(order_in_a_child)


class Calls(unittest.TestCase):
    """Calls of libzinf and torch, recorded."""

    def test_a_stream_is_told_again_when_the_switch_failed(self) -> None:
        session = zinf.Session.__new__(zinf.Session)
        session._gpu_stream = 5
        told = []

        def call(_: Any, stream: Any) -> None:
            told.append(stream)
            if stream == 7:
                raise zinf.GpuFailed("CUDA error 700")

        with mock.patch.multiple(zinf.Session, _function=lambda *_: None, _call=staticmethod(call)):
            with self.assertRaises(zinf.GpuFailed):
                session.gpu_stream(7)
            for stream in (5, 5, 0):
                session.gpu_stream(stream)
        self.assertEqual(told, [7, 5, None])

    def test_nccl_gets_tensors_of_the_present_gpu(self) -> None:
        for backend, place in (("gloo", "cpu"), ("nccl", "cuda:3")):
            with (
                mock.patch.object(torch.distributed, "get_backend", lambda name=backend: name),
                mock.patch.object(torch.cuda, "current_device", return_value=3),
            ):
                self.assertEqual(zinf.zero._place_for_collectives(), torch.device(place))


class Tensors(unittest.TestCase):
    def test_share_memory_of_an_address(self) -> None:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for shape in ((), (3,), (2, 3, 4)):
                with self.subTest(dtype=dtype, shape=shape):
                    memory = torch.arange(24).to(dtype)
                    made = devices.from_address(memory.data_ptr(), shape, dtype, 1, 0)
                    self.assertEqual((made.dtype, tuple(made.shape)), (dtype, shape))
                    self.assertTrue(made.is_contiguous())
                    made += 1
                    self.assertTrue(torch.equal(made.reshape(-1), memory[: made.numel()]))
                    self.assertEqual(memory[made.numel() - 1].item(), made.numel())


if __name__ == "__main__":
    unittest.main()
