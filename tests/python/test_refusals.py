# SPDX-License-Identifier: Apache-2.0
"""Bad input to zinf.prepare() and to loops over a prepared model.

Goal: a fitting exception with libzinf's sentence, every rank ends, and what was refused can still
be used. Method: small models on the daemon of the tests; ranks as forked processes. Other files
have more of it: test_guard (copies, forks, writes), test_engine, test_session, test_interrupt.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import unittest
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import house
import torch_models as models
import zinf
from older import OlderDaemon
from test_training import TrainingCase, prepared
from torch import nn
from zinf.module import units

_DEFERRED = 1 << 22  # the feature bit of is_deferred, zinf_grad_norm() and zinf_step_discard()


class Daemons(TrainingCase):
    def refuse(self, kind: Any, text: str, **settings: Any) -> nn.Module:
        """Check that prepare() is refused, and that torch can train the model then."""
        module = models.model(count=1)
        with self.assertRaisesRegex(kind, text):
            zinf.prepare(module, models.adamw(module), house.config(**settings))
        self.assertIsNone(zinf.engine_of(module))
        plain = models.model(count=1)
        torchs = models.train(plain, models.adamw(plain), steps=2)
        self.assertEqual(models.train(module, models.adamw(module), steps=2), torchs)
        return module

    def test_no_daemon(self) -> None:
        text = "no zinfd at /nonexistent/s: start it.*private_dir=.*ZINF_PRIVATE=DIR"
        self.refuse(zinf.DaemonNotFound, text, socket_path="/nonexistent/s")

    def behind(self, hidden: int, major: int | None = None) -> str:
        """Return the socket of an older daemon."""
        path = os.path.join(house.folder("older"), "s")
        older = OlderDaemon(path, house.socket_path(), hidden, major)
        self.addCleanup(older.close)
        return path

    def test_older_daemon(self) -> None:
        # Bit 13 is the tail of ATTACH: strategies and groups.
        for hidden in (_DEFERRED, (1 << 64) - 1):
            module = models.model(count=1)
            path = self.behind(hidden)
            _, optimizer = zinf.prepare(
                module, models.adamw(module), house.config(socket_path=path)
            )
            engine: Any = zinf.engine_of(module)
            self.assertTrue(torch.isfinite(models.loss_of(module, models.batch(0))))
            for _ in range(2):
                with self.assertRaisesRegex(
                    zinf.Unsupported, f"zinfd at {path} does not support it: use a newer zinfd"
                ):
                    models.train(module, optimizer, steps=1)
                optimizer.zero_grad()
            engine.close(delete_job=True)

    def test_daemon_of_today_behind_the_double_of_an_older_one(self) -> None:
        """The double hides nothing: it changes nothing."""
        plain = models.model(count=1)
        torchs = models.train(plain, models.adamw(plain), steps=2, clip=1.0)
        with prepared(models.model(count=1), socket_path=self.behind(0), **models.NVME) as (
            module,
            optimizer,
            _,
        ):
            self.assert_close(models.train(module, optimizer, steps=2, clip=1.0), torchs)

    def test_daemon_of_another_major_version(self) -> None:
        path = self.behind(0, major=2)
        self.refuse(
            zinf.Unsupported, "speaks protocol 2.0, libzinf .* speaks 1.0", socket_path=path
        )

    def test_small_budgets(self) -> None:
        for name, kind, settings in (
            ("param_budget_bytes", zinf.NoSpace, {}),
            ("grad_budget_bytes", zinf.NoSpace, {"strategy": "zero3"}),
            ("staging_bytes", zinf.InvalidArgument, {}),
        ):
            with self.subTest(name):
                text = rf"{name} is 1000 B: .* at least \d+ bytes"
                self.refuse(kind, text, **{name: 1000}, **settings, **models.NVME)

    def test_full_store(self) -> None:
        module = nn.Linear(2000, 2000)
        with self.assertRaisesRegex(zinf.NoSpace, r"needs 2 x .* enlarge the store.*it fits with"):
            zinf.prepare(module, models.adamw(module), house.config(**models.NVME))
        self.assertTrue(torch.isfinite(module(torch.ones(1, 2000))).all())

    def test_store_without_room_for_a_snapshot(self) -> None:
        with prepared(nn.Linear(1200, 1200), **models.NVME) as (module, optimizer, engine):
            module(torch.ones(1, 1200)).sum().backward()
            optimizer.step()
            # The sentence is whole, to its end.
            with self.assertRaisesRegex(zinf.NoSpace, "of 64 MiB: enlarge .* destroy other jobs$"):
                engine.snapshot("kept")
                module(torch.ones(1, 1200)).sum().backward()
                optimizer.step()
                engine.snapshot("second")
            self.assertTrue(torch.isfinite(module.weight).all())

    def test_too_little_memory(self) -> None:
        module = nn.Linear(6000, 6000)
        with self.assertRaisesRegex(zinf.NoSpace, r"take 274.7 MiB, .* raise tier.cpu.capacity"):
            zinf.prepare(module, models.adamw(module), house.config())


class Models(unittest.TestCase):
    def test_on_another_device(self) -> None:
        plan = units.Plan("block", [nn.Identity()])
        elsewhere = mock.Mock(spec=nn.Parameter, device=torch.device("cuda", 1))
        plan.parameters.append(("layer.weight", elsewhere))
        with self.assertRaisesRegex(
            zinf.InvalidArgument, r"'layer.weight' is on cuda:1.*\.cpu\(\)"
        ):
            units.check_parameters([plan], None, torch.device("cpu"))
        meta = nn.Linear(3, 3, device="meta")
        with self.assertRaisesRegex(zinf.InvalidArgument, r"meta device.*zinf.init\(\)"):
            zinf.prepare(meta, models.adamw(meta), house.config())

    def test_of_other_types(self) -> None:
        mixed = nn.ParameterList(
            [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.complex64))]
        )
        with self.assertRaisesRegex(zinf.InvalidArgument, "torch.complex64 in group 0"):
            zinf.prepare(mixed, models.adamw(mixed), house.config())
        with self.assertRaisesRegex(zinf.InvalidArgument, "param_dtype is 'float8'"):
            house.config(param_dtype="float8")

    def test_of_two_types_become_one_by_a_setting(self) -> None:
        mixed = models.model(count=1)
        mixed.norm.double()
        with prepared(mixed, param_dtype="float32") as (module, optimizer, _):
            self.assertEqual(module.norm.weight.dtype, torch.float32)
            models.train(module, optimizer, steps=1)

    def test_that_change_after_prepare(self) -> None:
        with prepared(models.model(count=1)) as (module, optimizer, _):
            weight, bias = module.norm.weight, module.norm.bias
            changes: tuple[tuple[str, Any, Any], ...] = (
                (
                    "'extra' is new",
                    lambda: setattr(module, "extra", nn.Linear(3, 3)),
                    lambda: delattr(module, "extra"),
                ),
                (
                    "'norm.extra' is new",
                    lambda: setattr(module.norm, "extra", nn.Parameter(torch.ones(2))),
                    lambda: delattr(module.norm, "extra"),
                ),
                (
                    "'norm.weight' was replaced",
                    lambda: setattr(module.norm, "weight", nn.Parameter(torch.ones(32))),
                    lambda: setattr(module.norm, "weight", weight),
                ),
                (
                    "'norm.bias' was replaced",
                    lambda: setattr(module.norm, "bias", None),
                    lambda: setattr(module.norm, "bias", bias),
                ),
                (
                    "'head.weight' was replaced",  # no longer tied
                    lambda: setattr(
                        module.head, "weight", nn.Parameter(module.embed.weight.detach() + 0)
                    ),
                    lambda: setattr(module.head, "weight", module.embed.weight),
                ),
            )
            for text, change, undo in changes:
                change()
                with self.assertRaisesRegex(zinf.InvalidArgument, f"{text}.*before prepare"):
                    models.loss_of(module, models.batch(0)).backward()
                optimizer.zero_grad()
                undo()
            models.train(module, optimizer, steps=1)

    def test_with_a_second_optimizer(self) -> None:
        with prepared(models.model(count=1)) as (module, optimizer, _):
            before = models.values(module)
            with self.assertRaisesRegex(zinf.ZinfError, r"SGD.*zinf.prepare\(\)"):
                other = torch.optim.SGD(module.parameters(), 0.1)
                models.loss_of(module, models.batch(0)).backward()
                other.step()
            optimizer.zero_grad()
            with self.assertRaisesRegex(zinf.ZinfError, "has no model: call .* zinf.prepare"):
                zinf.optim.AdamW(module.parameters()).step()
            self.assertTrue(models.is_same(models.values(module), before))
            models.train(module, optimizer, steps=1)


# ---- ranks ----


def rank(send: Any, kind: str) -> None:
    """Train as one of two ranks, of which rank 1 does something else. Sends the exception."""
    if "MASTER_ADDR" in os.environ:
        raise AssertionError("this test is one without MASTER_ADDR")
    module = models.model(count=1)
    config = zinf.Config.load(None, timeout=30)
    _, optimizer = zinf.prepare(module, models.adamw(module), config)
    engine: Any = zinf.engine_of(module)
    number = engine.session.rank
    models.train(module, optimizer, steps=1, ranks=(number,))
    try:
        if number == 1 and kind == "raises":
            raise ValueError("a bad batch")
        if number == 1 and kind == "waits":
            engine.session.barrier()  # It waits for the other rank, which makes a step.
        if number == 0 and kind == "waits":
            models.train(module, optimizer, steps=1)
            engine.session.wait(engine._ticket, timeout=0.5)
        if number == 0 or kind == "trains":
            models.train(module, optimizer, steps=2, ranks=(number,))
            engine.last_stats()
    except Exception as error:
        send(f"{type(error).__name__}: {error}")
        if kind != "has no data":
            return  # Without a close(), as a script ends.
    try:
        engine.close()
    except zinf.PeerLost:  # A step is under way that will not be committed.
        if not engine.session.is_closed:
            raise


class Ranks(unittest.TestCase):
    def test_without_master_addr(self) -> None:
        self.assertEqual(models.run_ranks(2, rank, "trains"), [[], []])

    def test_one_that_raises(self) -> None:
        first, second = models.run_ranks(2, rank, "raises")
        self.assertEqual(second, ["ValueError: a bad batch"])
        self.assertRegex(first[0], r"PeerLost: .*rank 1 \(pid \d+\)")

    def test_one_without_data(self) -> None:
        first, second = models.run_ranks(2, rank, "has no data")
        self.assertEqual(second, [])
        self.assertRegex(first[0], r"PeerLost: .*rank 1 \(pid \d+\)")

    def test_one_that_waits_elsewhere(self) -> None:
        first, second = models.run_ranks(2, rank, "waits")
        self.assertRegex(first[0], "Timeout: .* within 500 ms")
        self.assertRegex(second[0], r"PeerLost: rank 0 \(pid \d+\)")


# ---- Ctrl-C ----


class CtrlC(unittest.TestCase):
    """Shown by the mechanism. test_interrupt has the signals themselves."""

    # Calls that return without waiting for other ranks or for a store.
    AT_ONCE = """
        zinf_unit_add zinf_param_add zinf_dp_group_add zinf_param_group zinf_loss_scale zinf_reshard
        zinf_prefetch zinf_grad_done zinf_reduce zinf_no_sync_begin zinf_no_sync_end zinf_blob_get
        zinf_test zinf_cancel zinf_tensor_get zinf_tensor_free zinf_tensor_prefetch
        zinf_gpu_apart zinf_gpu_stream zinf_gpu_stats
    """

    def test_reaches_each_call_that_waits(self) -> None:
        tree = ast.parse(textwrap.dedent(inspect.getsource(zinf.Session)))
        ways: dict[str, set[str]] = {"_call": set(), "_wait_call": set()}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr in ways and node.args:
                called = node.args[0]
                if isinstance(called, ast.Call):  # self._function("zinf_...")
                    name = ast.literal_eval(called.args[0])
                else:
                    name = getattr(called, "attr", "")
                ways[node.func.attr].add(name)
        at_once = set(self.AT_ONCE.split())
        # _wait_in_slices() calls zinf_wait_for() for a fifth of a second.
        self.assertLessEqual(ways["_call"], at_once | {"zinf_wait_for"})
        self.assertGreater(len(ways["_wait_call"]), 15)
        self.assertFalse(ways["_wait_call"] & at_once)

    def test_amid_a_step_leaves_the_model_whole(self) -> None:
        plain = models.model()
        torchs = models.train(plain, models.adamw(plain), steps=2)
        with prepared(models.model(), **models.NVME) as (module, optimizer, engine):
            for name in ("unshard", "grad_acquire", "step_begin", "step_with", "prefetch"):
                for skipped in (0,) if name == "step_with" else (0, 2):
                    self.interrupt(name, skipped, module, optimizer, engine)
            ours = models.train(module, optimizer, steps=2)
            self.assertEqual(engine.committed_step, 2)
        for mine, other in zip(ours, torchs):
            self.assertAlmostEqual(mine, other, delta=1e-5 * abs(other))

    def interrupt(self, name: str, skipped: int, module: Any, optimizer: Any, engine: Any) -> None:
        """Let Ctrl-C end one call of a step, and go on after it."""
        stock = getattr(engine.session, name)
        left = [skipped]

        def call(*arguments: Any) -> Any:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return stock(*arguments)

        with mock.patch.object(engine.session, name, call):
            try:
                loss = models.loss_of(module, models.batch(5))
                loss.backward()
                if name != "step_with":
                    return
                optimizer.step()
            except KeyboardInterrupt:
                pass
            finally:
                optimizer.zero_grad()


if __name__ == "__main__":
    unittest.main()
