# SPDX-License-Identifier: Apache-2.0
"""Whatever a script does to a parameter in zinf, the interpreter lives.

Goal: the right value or an exception, before a step, amid it and after it, with parameters in
memory and on NVMe. Method: a forked process runs all cases in each phase; it names a case before
it runs, so that a crash is known by its case.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import pickle
import time
import unittest
from typing import Any, Callable
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import house
import numpy as np
import torch.nn.functional as F  # noqa: N812 - the usual name
import torch.utils.checkpoint
import torch.utils.dlpack
import torch_models as models
import zinf
from torch import nn
from zinf import ReadOnlyParameter, scratch
from zinf.module import memory


def raised(kind: Any, call: Callable[[], Any]) -> str:
    """Return the text of an exception that a call raises."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind} was not raised")


def check(condition: Any) -> None:
    if not condition:
        raise AssertionError("the value is wrong")


def check_closed(alias: torch.Tensor) -> None:
    """Check that an unguarded tensor over a parameter that is away gives no values."""
    if memory.means() == "message":
        for read in (
            alias.sum,
            alias.clone,
            alias.tolist,
            alias.data_ptr,
            lambda: alias @ alias.t(),
        ):
            check("is away" in raised(RuntimeError, read))
        raised(RuntimeError, lambda: alias.detach().zero_())
        raised(RuntimeError, lambda: alias.detach().numpy())
    else:
        check(torch.isnan(alias).all() and torch.isnan(alias.sum()))


class Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A data set for workers."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index


class Cases:
    """The cases: methods whose names begin with `do_`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        module = models.model()
        self.model, self.optimizer = zinf.prepare(
            module, models.adamw(module), house.config(**settings)
        )
        self.engine: Any = zinf.engine_of(self.model)
        self.p: Any = self.model.blocks[1].up.weight
        self.index = torch.tensor([0, 1])

    # ---- writes ----

    def do_write_through_data(self) -> None:
        raised(ReadOnlyParameter, lambda: self.p.data.add_(1))
        raised(ReadOnlyParameter, self.p.data[0].zero_)
        raised(ReadOnlyParameter, lambda: self.p.data.__setitem__(0, 1))
        text = raised(ReadOnlyParameter, lambda: setattr(self.p, "data", torch.zeros(64, 32)))
        check("blocks.1.up.weight" in text and "writable" in text)
        self.p.data = self.p.data

    @torch.no_grad()
    def do_write_in_place(self) -> None:
        raised(ReadOnlyParameter, lambda: self.p.add_(1))
        raised(ReadOnlyParameter, lambda: self.p.__iadd__(1))
        raised(ReadOnlyParameter, lambda: self.p.__setitem__(0, 1))
        raised(ReadOnlyParameter, lambda: torch._foreach_add_([self.p], 1))
        raised(ReadOnlyParameter, lambda: torch.relu_(self.p))
        raised(ReadOnlyParameter, lambda: F.relu(self.p, inplace=True))
        raised(ReadOnlyParameter, lambda: F.dropout(self.p, 0.5, True, True))
        raised(ReadOnlyParameter, lambda: torch.ops.aten.mul_.Scalar(self.p, 2))
        raised(ReadOnlyParameter, lambda: self.p.resize_(3))
        raised(ReadOnlyParameter, lambda: self.p.set_(torch.zeros(3)))
        raised(ReadOnlyParameter, lambda: torch.zeros(3).set_(self.p))
        weight = self.model.embed.weight
        raised(ReadOnlyParameter, lambda: F.embedding(self.index, weight, max_norm=1.0))
        x = torch.zeros(4, 32)
        means = self.p[0]
        raised(ReadOnlyParameter, lambda: F.batch_norm(x, means, means, training=True))

    def do_write_through_views(self) -> None:
        detached = self.p.detach()
        for view in (
            detached.view(-1),
            detached.t(),
            detached.chunk(2)[0],
            detached.reshape(-1),
            detached.contiguous(),
            detached.float(),
            detached.expand(2, 64, 32)[0],
            detached[None, ..., 0],
            next(iter(detached)),
            detached.view(-1)._base,
        ):
            raised(ReadOnlyParameter, lambda view=view: view.add_(1))
        detached[self.index].add_(1)  # a copy

    @torch.no_grad()
    def do_write_as_output(self) -> None:
        raised(ReadOnlyParameter, lambda: torch.add(self.p, 1, out=self.p))
        raised(ReadOnlyParameter, lambda: torch.zeros(64, 32, out=self.p.data))

    def do_initialize(self) -> None:
        raised(ReadOnlyParameter, lambda: nn.init.normal_(self.p))
        raised(ReadOnlyParameter, lambda: nn.init.kaiming_uniform_(self.p))
        raised(ReadOnlyParameter, self.model.blocks[0].up.reset_parameters)

    def do_convert(self) -> None:
        check("param_dtype" in raised(ReadOnlyParameter, self.model.half))
        raised(ReadOnlyParameter, self.model.double)
        raised(ReadOnlyParameter, lambda: self.model.to(torch.bfloat16))
        check(self.model.to("cpu").float().to(torch.float32) is self.model)
        check(self.p.half().dtype == torch.float16)

    def do_set_grad(self) -> None:
        raised(ReadOnlyParameter, lambda: setattr(self.p, "grad", torch.zeros(64, 32)))
        self.p.grad = None
        check(self.p.grad is None)

    def do_flip_requires_grad(self) -> None:
        self.p.requires_grad_(False)
        self.p.requires_grad = True
        self.model.requires_grad_(True)

    def do_share_memory(self) -> None:
        raised(ReadOnlyParameter, self.p.share_memory_)
        raised(ReadOnlyParameter, self.model.share_memory)
        check(not self.p.is_shared())

    def do_step_another_optimizer(self) -> None:
        text = raised(zinf.ZinfError, lambda: torch.optim.AdamW(self.model.parameters()).step())
        check("prepare" in text)

    # ---- reads ----

    def do_read(self) -> None:
        check(torch.isfinite(self.p).all())
        check(torch.equal(torch.tensor(self.p), self.p))
        check(torch.equal(torch.zeros(1).new_tensor(self.p), self.p))
        check(len(self.p.tolist()) == 64 and len(self.p) == 64)
        check(torch.isfinite(torch.cat([self.p, torch.zeros(64, 32)])).all())
        check("Parameter containing" in repr(self.p) and "tensor(" in str(self.p.data))
        check(self.p in {self.p} and self.p.numel() == 2048)

    def do_read_a_view_later(self) -> None:
        with self.engine.gathered(self.model.blocks[1]):
            view = self.p.view(-1)[3:9]
        check(torch.equal(view + 0, self.p.reshape(-1)[3:9]))

    def do_read_without_a_guard(self) -> None:
        """No guard sees these tensors: memory.py closes what they share."""
        aliases = (
            torch.FloatTensor(self.p),
            torch.Tensor._make_subclass(torch.Tensor, self.p),
            torch.FloatTensor(self.p.detach()).view(-1)[5:],
        )
        check(not any(isinstance(alias, type(self.p.detach())) for alias in aliases))
        for alias in aliases:
            check_closed(alias)
            with self.engine.gathered(self.p):
                check(torch.equal(alias.reshape(-1)[-3:], self.p.detach().reshape(-1)[-3:]))
            check_closed(alias)
            self.p.sum()
            check_closed(alias)

    def do_construct(self) -> None:
        made = torch.Tensor(self.p)
        check(torch.equal(made, self.p))
        raised(ReadOnlyParameter, lambda: made.add_(1))
        copied = nn.Parameter(self.p.clone().detach())
        copied.data.add_(1)
        kind = type("Kind", (torch.Tensor,), {})
        check(isinstance(kind(self.p), kind))
        raised(ReadOnlyParameter, kind(self.p).zero_)
        check(torch.Tensor([1, 2]).sum() == 3 and torch.Tensor(2, 3).shape == (2, 3))

    def do_ask_for_addresses(self) -> None:
        rows = self.p.detach()[2:]
        check(rows.data_ptr() == self.p.data_ptr() + 2 * 32 * 4)
        check(self.model.head.weight.data_ptr() == self.model.embed.weight.data_ptr())
        check(not self.p.is_pinned() and not rows.is_shared())

    def do_export_to_numpy(self) -> None:
        array = self.p.detach().numpy()
        raised(ValueError, lambda: array.__setitem__(0, 1))
        raised(RuntimeError, self.p.numpy)
        check(np.isfinite(np.asarray(self.p.detach())).all())
        torch.utils.dlpack.from_dlpack(self.p.detach()).add_(1)

    def do_use_storage(self) -> None:
        storage = self.p.storage()
        check(storage.data_ptr() == self.p.data_ptr())
        raised(ReadOnlyParameter, lambda: storage[0])
        raised(ReadOnlyParameter, lambda: storage.fill_(1))

    def do_use_a_module_alone(self) -> None:
        x = self.model.embed(self.index)
        loss = self.model.norm(x).sum() + self.model.blocks[0](x[None]).sum()
        check(torch.isfinite(torch.autograd.grad(loss, [x])[0]).all())

    def do_evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            for length in range(3, 6):
                models.loss_of(self.model, models.batch(3, length=length))
        self.model.train()

    def do_trace(self) -> None:
        ids = models.batch(0)
        check("deepcopy" in raised(zinf.ZinfError, lambda: torch.jit.trace(self.model, (ids,))))

    # ---- copies ----

    def check_copy(self, copied: Any) -> None:
        check(type(copied.blocks[1].up.weight) is nn.Parameter)
        check(copied.head.weight is copied.embed.weight)
        check(torch.equal(copied.blocks[1].up.weight, self.p))
        models.loss_of(copied, models.batch(0)).backward()
        check(copied.blocks[0].up.weight.grad is not None)
        copied.zero_grad()
        copied.half()

    def do_deepcopy(self) -> None:
        self.check_copy(copy.deepcopy(self.model))

    def do_pickle(self) -> None:
        self.check_copy(pickle.loads(pickle.dumps(self.model)))
        torch.save(self.model, io.BytesIO())

    def do_copy(self) -> None:
        copied = copy.copy(self.p)
        check(type(copied) is nn.Parameter)
        copied.data.add_(1)
        models.loss_of(copy.copy(self.model), models.batch(0))

    def do_save(self) -> None:
        for value in (self.model.state_dict(), self.p, self.p.detach()):
            torch.save(value, io.BytesIO())

    def do_state_dict(self) -> None:
        state = self.model.state_dict()
        check(state["head.weight"].data_ptr() == state["embed.weight"].data_ptr())
        check(all(type(value) is torch.Tensor for value in state.values()))
        state["norm.weight"].add_(1)  # its own memory
        inner = self.model.blocks[1].state_dict()
        check(torch.equal(inner["up.weight"], self.p))

    # ---- processes ----

    def do_load_data_in_workers(self) -> None:
        check(len(list(torch.utils.data.DataLoader(Items(), num_workers=1))) == 2)

    def do_read_in_a_child(self) -> None:
        def read(send: Any) -> None:
            for call in (self.p.sum, lambda: self.model(models.batch(0))):
                send(raised(zinf.ForkedChild, call))

        # A worker of a DataLoader whose item raises would take torch five seconds to end.
        child = models.Process({}, read)
        texts = list(child.values())
        check(child.finish() == 0 and len(texts) == 2 and "forked child" in texts[0])

    # ---- allowed writes; the last cases ----

    def do_z_load_state_dict(self) -> None:
        state = {name: value + 1 for name, value in self.model.state_dict().items()}
        if self.engine.has_begun:
            raised(zinf.Busy, lambda: self.model.load_state_dict(state))
            return
        self.model.load_state_dict(state)
        check(all(torch.equal(v, state[k]) for k, v in self.model.state_dict().items()))
        state["other"] = state.pop("norm.bias")
        text = raised(RuntimeError, lambda: self.model.load_state_dict(state))
        check("Missing key" in text and "Unexpected key" in text)
        self.model.blocks[0].load_state_dict(self.model.blocks[1].state_dict())
        check(torch.equal(self.model.blocks[0].up.weight, self.p))

    def do_z_write_inside_writable(self) -> None:
        if self.engine.has_begun:
            raised(zinf.Busy, lambda: self.engine.writable().__enter__())
            return
        with self.engine.writable(), torch.no_grad():
            self.p.zero_()
            self.p.data[0] = 2
            self.model.embed.reset_parameters()
        check(self.p[0].sum().item() == 64 and not self.p[1].any())
        with self.engine.writable(self.model.norm):
            raised(ReadOnlyParameter, lambda: self.p.data.add_(1))
        raised(ReadOnlyParameter, lambda: self.p.data.add_(1))


def run_cases(send: Any, settings: dict[str, Any]) -> None:
    """Run all cases in each phase. Sends names, and texts of failures."""
    cases = Cases(settings)
    names = sorted(name for name in dir(cases) if name.startswith("do_"))
    phases: tuple[tuple[str, Callable[[], Any]], ...] = (
        ("before", lambda: None),
        ("amid", lambda: models.loss_of(cases.model, models.batch(0)).backward()),
        ("after", cases.optimizer.step),
    )
    for phase, enter in phases:
        enter()
        for name in names:
            send((phase, name, ""))
            try:
                getattr(cases, name)()
            except BaseException as error:
                send((phase, name, f"{type(error).__name__}: {error}"))
        if any(unit.depth or (unit.holds and not unit.is_rest) for unit in cases.engine.units):
            send((phase, "units", "are still held"))
    alias = torch.FloatTensor(cases.p)
    cases.engine.close(delete_job=True)
    send(("closed", "use", ""))
    check(memory.means() != "message" or "has moved" in raised(RuntimeError, alias.sum))
    raised(zinf.SessionClosed, cases.p.sum)
    raised(zinf.SessionClosed, lambda: cases.model(models.batch(0)))
    send(("END", "", ""))


def move_memory(send: Any, kind: str) -> None:
    """Return to a snapshot, and read what shared the memory of before."""
    model, optimizer = zinf.prepare(
        (module := models.model()), models.adamw(module), house.config(**models.NVME)
    )
    engine: Any = zinf.engine_of(model)
    models.train(model, optimizer, steps=1)
    engine.snapshot("kept")
    view = model.norm.weight.detach()
    if kind != "guarded":
        view = torch.FloatTensor(view)
    gather = engine.gathered(model.norm) if kind == "present alias" else contextlib.nullcontext()
    models.train(model, optimizer, steps=1)
    with gather:
        check(kind == "alias" or torch.isfinite(view).all())
        scratch.restore(engine, f"{engine.session.job}/kept")
    send("moved")
    if memory.means() == "message":
        check("has moved" in raised(RuntimeError, view.sum))
    else:
        check(torch.isnan(view.sum()))
    check(torch.isfinite(model.norm.weight).all())
    models.train(model, optimizer, steps=1)
    engine.close(delete_job=True)
    send("read")


class Memory(unittest.TestCase):
    """What closes the memory of a parameter for all tensors that share it."""

    def test_this_torch_has_a_means(self) -> None:
        self.assertIn(memory.means(), ("message", "pointer"))
        self.assertGreaterEqual(memory._word_index(), 0)

    def test_by_the_pointer(self) -> None:
        with mock.patch.object(memory, "means", return_value="pointer"):
            for dtype, count in ((torch.float32, 5), (torch.bfloat16, 3), (torch.float16, 1 << 20)):
                tensor = torch.ones(count, dtype=dtype)
                former = tensor.data_ptr()
                place = memory.Memory(tensor, "p")
                place.close()
                self.assertTrue(torch.isnan(tensor[1:].float()).all())
                place.open()
                self.assertEqual((tensor.data_ptr(), tensor[0].item()), (former, 1))
                place.end()
                place = memory.Memory(torch.zeros(1), "q")
                self.assertTrue(torch.isnan(tensor.float()).all())
        self.assertLess(len(memory._nans), 8)

    def test_by_the_message(self) -> None:
        if memory.means() != "message":
            self.skipTest("this torch has no message for a closed storage")
        tensor = torch.ones(3)
        place = memory.Memory(tensor, "layer.weight")
        place.close()
        place.close()
        with self.assertRaisesRegex(RuntimeError, "'layer.weight' is away"):
            tensor.sum()
        place.open()
        self.assertEqual(tensor.sum().item(), 3)
        place.end()
        with self.assertRaisesRegex(RuntimeError, "has moved"):
            tensor.sum()

    def test_without_a_means(self) -> None:
        with mock.patch.object(memory, "means", return_value=""):
            tensor = torch.ones(3)
            place = memory.Memory(tensor, "p")
            place.close()
            self.assertEqual(tensor.sum().item(), 3)
            place.open()
            place.end()

    def test_a_probe_that_fails_changes_nothing(self) -> None:
        index = memory._word_index.__wrapped__
        with mock.patch.object(memory, "_HEAD_WORDS", 0):
            self.assertEqual(index(), -1)
        with (
            mock.patch.object(memory, "_close_with", mock.Mock()),
            mock.patch.object(memory, "_open_again", mock.Mock()),
        ):
            self.assertFalse(memory._message_works())

    def test_no_memory_for_nan(self) -> None:
        with mock.patch.object(memory, "_nans", []), self.assertRaisesRegex(OSError, "of NaN"):
            memory._nan_address(1 << 62)


class Guard(unittest.TestCase):
    def run_with(self, settings: dict[str, Any]) -> None:
        house.socket_path()
        process = models.Process({}, run_cases, settings)
        sent = list(process.values())
        code = process.finish()
        failures = [" ".join(entry) for entry in sent if entry[2]]
        self.assertEqual(failures, [])
        self.assertEqual((code, sent[-1][0]), (0, "END"), f"the last case was {sent[-1]}")

    def test_in_memory(self) -> None:
        self.run_with({})

    def test_on_nvme(self) -> None:
        self.run_with(models.NVME)

    def test_memory_that_moved(self) -> None:
        """After a return to a snapshot the tensors from before have no memory."""
        house.socket_path()
        for kind in ("guarded", "alias", "present alias"):
            process = models.Process({}, move_memory, kind)
            sent = list(process.values())
            self.assertEqual((process.finish(), sent), (0, ["moved", "read"]), kind)

    def test_costs_microseconds(self) -> None:
        module = nn.Linear(8, 8)
        zinf.prepare(module, models.adamw(module), house.config())
        engine: Any = zinf.engine_of(module)
        plain, x = nn.Linear(8, 8), torch.zeros(1, 8)

        def seconds(weight: Any) -> float:
            best = 1.0
            for _ in range(5):
                start = time.process_time()
                for _ in range(2000):
                    F.linear(x, weight)
                best = min(best, (time.process_time() - start) / 2000)
            return best

        with engine.gathered(), torch.no_grad():
            cost = seconds(module.weight) - seconds(plain.weight)
        engine.close(delete_job=True)
        if os.environ.get("TEST_VERBOSE"):
            print(f"a guarded operation takes {cost * 1e6:.1f} us more")
        self.assertLess(cost, 50e-6)


if __name__ == "__main__":
    unittest.main()
