# SPDX-License-Identifier: Apache-2.0
"""Values of a model on a fake GPU: parameters, buffers, snapshots, and tensors over an address.

Goal: all that reads or writes parameters acts as on the CPU, or is refused with what to do.
Method: as in test_gpu.py; what zinf does not hold is moved with a recorded copy.
"""

from __future__ import annotations

import copy
import pickle
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
import zinf
from gpu_house import THREE, ZERO3, prepared, refused, run
from zinf import checkpoint, scratch
from zinf.module import device as devices
from zinf.module import parameter, units

setUpModule, tearDownModule = gpu_house.start, gpu_house.stop


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


def with_snapshot(job: str, steps: int) -> tuple[Any, Any, Any]:
    """Prepare a model on NVMe, train it, and keep the snapshot "kept"."""
    module, optimizer, engine = prepared(models.model(), "cuda", job=job, **models.NVME)
    models.train(module, optimizer, steps=steps)
    engine.snapshot("kept")
    return module, optimizer, engine


def restore_a_snapshot(send: Any) -> None:
    module, optimizer, engine = with_snapshot("restored", steps=2)
    expected = models.train(module, optimizer, steps=2)
    scratch.restore(engine, "restored/kept")
    assert models.train(module, optimizer, steps=2) == expected
    engine.close(delete_job=True)
    send("good")


def restore_without_room(send: Any) -> None:
    """The second session of the process finds no GPU memory."""
    module, optimizer, engine = with_snapshot("full", steps=1)
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
