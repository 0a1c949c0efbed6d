# SPDX-License-Identifier: Apache-2.0
"""zinf.initialize() and its engine, in DeepSpeed's shape.

Goal: a script of DeepSpeed trains with the losses of a plain loop; its checkpoints continue with
the same bits; DeepSpeed's own checkpoints give their weights. Method: a small transformer; files of
DeepSpeed's layout that the tests write.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import os
import shutil
import unittest
from collections.abc import Iterator
from typing import Any

try:
    import torch
except ImportError as error:  # the package itself needs no torch
    raise unittest.SkipTest("torch is not installed") from error

import house
import torch_models as models
import zinf
import zinf as deepspeed
from torch import nn
from zinf.deepspeed import schedules
from zinf.deepspeed.data import RepeatingLoader
from zinf.deepspeed.zero_checkpoint import ZeroCheckpoint

CLOSE = 1e-5
ADAMW = {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}
WARMUP = {"type": "WarmupLR", "params": {"warmup_num_steps": 4, "warmup_max_lr": 2e-3}}


def file(**keys: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 1.0,
        "optimizer": ADAMW,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}},
        **keys,
    }


@contextlib.contextmanager
def started(module: nn.Module | None = None, **arguments: Any) -> Iterator[Any]:
    """Call initialize(); at the end its job is deleted, and torch's process group."""
    module = models.model() if module is None else module
    arguments.setdefault("config", file())
    settings = {"socket_path": house.socket_path(), "timeout": 20}
    engine, *_ = deepspeed.initialize(model=module, **arguments, **settings)
    try:
        yield engine
    finally:
        engine.zinf.close(delete_job=True)
        end_group()


def end_group() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def train(engine: Any, steps: int, start: int = 0, rank: int = 0) -> list[float]:
    """Run a loop as a script of DeepSpeed has it. Return loss, norm and lr of each step."""
    numbers = []
    count = engine.gradient_accumulation_steps()
    for step in range(start, start + steps):
        total = 0.0
        for micro in range(count):
            loss = models.loss_of(engine, models.batch(step * count + micro, rank))
            total += engine.backward(loss).item()
            engine.step()
        numbers += [total, engine.get_global_grad_norm(), engine.get_lr()[0]]
    return numbers


def train_plain(
    steps: int, accumulation: int = 1, has_schedule: bool = False, ranks: tuple[int, ...] = (0,)
) -> list[float]:
    module = models.model()
    optimizer = models.adamw(module)
    schedule: Any = None
    if has_schedule:
        schedule = schedules.WarmupLR(optimizer, warmup_num_steps=4, warmup_max_lr=2e-3)
    numbers = []
    for step in range(steps):
        numbers += [
            *train_once(module, step, accumulation, ranks),
            float(nn.utils.clip_grad_norm_(module.parameters(), 1.0)),
        ]
        optimizer.step()
        optimizer.zero_grad()
        if schedule is not None:
            schedule.step()
        numbers.append(optimizer.param_groups[0]["lr"])
    return numbers


def train_once(
    module: nn.Module, step: int, accumulation: int, ranks: tuple[int, ...]
) -> list[float]:
    total = 0.0
    for micro in range(accumulation):
        batches = [models.batch(step * accumulation + micro, rank) for rank in ranks]
        losses = [models.loss_of(module, batch) for batch in batches]
        loss: Any = sum(losses) / len(losses) / accumulation
        loss.backward()
        total += loss.item()
    return [total]


class Case(unittest.TestCase):
    def assert_close(self, ours: list[float], others: list[float]) -> None:
        self.assertEqual(len(ours), len(others))
        for mine, other in zip(ours, others):
            self.assertLessEqual(abs(mine - other), CLOSE * abs(other))


class Training(Case):
    def test_a_script_has_the_losses_of_a_plain_loop(self) -> None:
        for accumulation in (1, 3):
            plain = train_plain(6, accumulation, has_schedule=True)
            config = file(gradient_accumulation_steps=accumulation, scheduler=WARMUP)
            with self.subTest(accumulation=accumulation), started(config=config) as engine:
                self.assert_close(train(engine, 6), plain)
                self.assertEqual(engine.global_steps, 6)
                self.assertEqual(engine.micro_steps, 6 * accumulation)
                self.assertEqual(engine.global_samples, 24 * accumulation)
                self.assertEqual(engine.get_batch_info(), (4 * accumulation, 4, accumulation))

    def test_optimizer_and_schedule_of_the_script(self) -> None:
        def parts(module: nn.Module) -> tuple[Any, Any]:
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
            return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        config = file(gradient_clipping=0)
        del config["optimizer"]
        found = []
        for way in range(3):
            module = models.model()
            optimizer: Any
            schedule: Any
            optimizer, schedule = parts(module)
            if way == 1:  # functions that make them
                optimizer = lambda groups: torch.optim.AdamW(groups, lr=1e-2)  # noqa: E731
                schedule = lambda made: torch.optim.lr_scheduler.StepLR(made, 2, 0.5)  # noqa: E731
            if way == 2:
                losses = []
                for step in range(5):
                    losses += [*train_once(module, step, 1, (0,)), optimizer.param_groups[0]["lr"]]
                    optimizer.step()
                    optimizer.zero_grad()
                    schedule.step()
                found.append(losses)
                continue
            with started(
                module, optimizer=optimizer, lr_scheduler=schedule, config=config
            ) as engine:
                numbers = []
                for step in range(5):
                    lr = engine.get_lr()[0]
                    numbers += [train(engine, 1, step)[0], lr]
                self.assertIs(engine.module, module)
                self.assertIsInstance(engine.optimizer, zinf.optim.AdamW)
                found.append(numbers)
        self.assert_close(found[0], found[2])
        self.assertEqual(found[0], found[1])

    def test_parts_of_a_step(self) -> None:
        # Boundaries by the script, no_sync(), several backward passes, boundaries by step().
        def by_hand(engine: Any, losses: Any) -> None:
            for number, loss in enumerate(losses):
                engine.set_gradient_accumulation_boundary(number == 1)
                self.assertEqual(engine.is_gradient_accumulation_boundary(), number == 1)
                engine.backward(loss)
            engine.step()

        def quiet(engine: Any, losses: Any) -> None:
            with engine.no_sync():
                engine.backward(losses[0], scale_wrt_gas=False)
                with self.assertRaisesRegex(zinf.InvalidArgument, "step\\(\\) inside no_sync"):
                    engine.step()
            engine.backward(losses[1], scale_wrt_gas=False)
            engine.step()

        def coalesced(engine: Any, losses: Any) -> None:
            with engine.coalesce_grad_reduction():
                for loss in losses:
                    engine.backward(loss)
            engine.step()

        def unmanaged(engine: Any, losses: Any) -> None:
            for loss in losses:
                engine.backward(loss)
                self.assertFalse(engine.is_gradient_accumulation_boundary())
            engine.step()

        cases: tuple[tuple[Any, int, dict[str, Any]], ...] = (
            (by_hand, 2, {}),
            (quiet, 1, {}),
            (coalesced, 1, {}),
            (unmanaged, 1, {"managed_gradient_accumulation": False}),
        )
        plain = models.model()
        optimizer = models.adamw(plain)
        for step in range(3):
            train_once(plain, step, 2, (0,))
            nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        first: Any = None
        for run, count, keys in cases:
            config = file(gradient_accumulation_steps=count, **keys)
            with self.subTest(run.__name__), started(config=config) as engine:
                for step in range(3):
                    batches = [models.batch(2 * step + micro) for micro in range(2)]
                    losses = [models.loss_of(engine, batch) for batch in batches]
                    run(engine, losses if run is by_hand else [loss / 2 for loss in losses])
                    self.assertTrue(engine.was_step_applied())
                self.assertEqual(engine.global_steps, 3)
                self.assertEqual(engine.global_samples, 24 if keys or run is by_hand else 12)
                values = models.values(engine.module)
                for value, other in zip(values, models.values(plain)):
                    self.assertLess(float((value - other).abs().max()), 1e-4)
                first = first or values
                self.assertTrue(models.is_same(values, first))

    def test_backward_of_torch_needs_one_micro_batch(self) -> None:
        with started() as engine:
            models.loss_of(engine, models.batch(0)).backward()
            engine.step()
            self.assert_close([engine.get_global_grad_norm()], train_plain(1)[1:2])
        with started(config=file(gradient_accumulation_steps=2)) as engine:
            engine.step()
            models.loss_of(engine, models.batch(0)).backward()
            with self.assertRaisesRegex(zinf.Unsupported, "call engine.backward\\(loss\\)"):
                engine.step()

    def test_optimizers_of_the_file(self) -> None:
        cases: tuple[tuple[str, dict[str, Any], str, dict[str, Any]], ...] = (
            ("Adam", {"lr": 0.01, "adam_w_mode": False, "weight_decay": 0.1}, "Adam",
             {"lr": 0.01, "weight_decay": 0.1}),
            ("AdamW", {"lr": 0.01, "betas": [0.8, 0.9]}, "AdamW",
             {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.0}),
            ("SGD", {"lr": 0.01, "momentum": 0.9}, "SGD", {"lr": 0.01, "momentum": 0.9}),
            ("Adagrad", {"lr": 0.01}, "Adagrad", {"lr": 0.01}),
        )  # fmt: skip
        for name, params, stock, options in cases:
            plain = models.model(count=1)
            torchs = models.train(plain, getattr(torch.optim, stock)(plain.parameters(), **options))
            config = file(optimizer={"type": name, "params": params}, gradient_clipping=0)
            with self.subTest(name), started(models.model(count=1), config=config) as engine:
                self.assert_close(train(engine, 10)[::3], torchs)

    def test_without_bias_correction(self) -> None:
        params = {"lr": 0.01, "bias_correction": False, "weight_decay": 0.0}
        config = file(optimizer={"type": "AdamW", "params": params}, gradient_clipping=0)
        plain = models.model(count=1)
        models.loss_of(plain, models.batch(0)).backward()
        with started(models.model(count=1), config=config) as engine:
            before = engine.module.head.weight.detach().clone()
            train(engine, 1)
            moved = engine.module.head.weight.detach() - before
        gradient = plain.head.weight.grad
        wanted = -0.01 * 0.1 * gradient / ((0.001 * gradient * gradient).sqrt() + 1e-8)
        self.assertLess(float((moved - wanted).abs().max()), 1e-6)

    def test_bfloat16(self) -> None:
        with started(config=file(bf16={"enabled": True})) as engine:
            self.assertEqual(engine.module.norm.weight.dtype, torch.bfloat16)
            self.assertTrue(engine.bfloat16_enabled())
            found = train(engine, 6)[::3]
        for mine, other in zip(found, train_plain(6)[::3]):
            self.assertLessEqual(abs(mine - other), 0.05 * other)

    def test_a_step_that_is_not_finite_is_skipped(self) -> None:
        with started(config=file(scheduler=WARMUP)) as engine:
            train(engine, 2)
            before, lr = engine.module.state_dict(), engine.get_lr()
            engine.backward(models.loss_of(engine, models.batch(5)) * float("inf"))
            engine.step()
            self.assertEqual((engine.skipped_steps, engine.global_steps), (1, 3))
            self.assertFalse(engine.was_step_applied())
            self.assertEqual(engine.get_lr(), lr)
            self.assertTrue(models.is_same(list(before.values()), models.values(engine.module)))

    def test_lines_for_the_eyes(self) -> None:
        config = file(steps_per_print=2, wall_clock_breakdown=True)
        with started(config=config) as engine, contextlib.redirect_stdout(io.StringIO()) as output:
            train(engine, 2)
        lines = output.getvalue().splitlines()
        self.assertRegex(lines[0], r"step=1, times in ms: forward [\d.]+, backward [\d.]+, step ")
        self.assertRegex(lines[2], r"step=2, skipped=0, lr=\[0.001\], mom=\[\(0.9, 0.999\)\]")

    def test_data(self) -> None:
        data = torch.arange(10)
        with started(training_data=data, config=file(dataloader_drop_last=True)) as engine:
            loader = engine.training_dataloader
            self.assertEqual(len(loader), 2)
            order = torch.utils.data.DistributedSampler(data, 1, 0)
            self.assertEqual(torch.cat(list(loader)).tolist(), list(order)[:8])
            repeated = RepeatingLoader(loader)
            self.assertEqual(len([next(repeated) for _ in range(5)]), 5)
            with self.assertRaisesRegex(zinf.InvalidArgument, "no DataLoader"):
                engine.deepspeed_io(iter([1]))
            engine.set_train_batch_size(12)
            self.assertEqual(engine.gradient_accumulation_steps(), 3)
            with self.assertRaisesRegex(ValueError, "multiple of 4"):
                engine.set_train_batch_size(7)


class Input(Case):
    def refused(self, text: str, kind: Any = zinf.InvalidArgument, **arguments: Any) -> None:
        with self.assertRaisesRegex(kind, text):
            deepspeed.initialize(**{"model": models.model(), "config": file(), **arguments})
        end_group()

    def test_wrong_arguments_are_refused(self) -> None:
        args = argparse.Namespace(deepspeed_config="ds.json")
        self.refused("a torch.nn.Module is needed, not NoneType", model=None)
        self.refused("no configuration", config=None)
        self.refused("two configurations", args=args)
        self.refused("is a list", config=[1])
        self.refused("no configuration of DeepSpeed", config={"strategy": "zero3"})
        self.refused("data-parallel", zinf.Unsupported, mpu=object())
        self.refused("an optimizer of torch.optim", optimizer=3)
        self.refused("an optimizer of torch.optim", optimizer=lambda groups: groups)
        self.refused("set bf16.enabled", model=models.model().bfloat16())
        self.refused("zero_optimisation", config={"train_batch_size": 1, "zero_optimisation": {}})
        text = '{"train_batch_size": 1, // samples\n "dataloader_drop_last": true}'
        self.refused("has comments and the key dataloader_drop_last", config=text)
        self.refused("no setting 'stratgy'", stratgy="zero3")

    def test_a_file_of_the_command_line(self) -> None:
        parser = deepspeed.add_config_arguments(argparse.ArgumentParser())
        path = os.path.join(house.folder("file"), "ds.json")
        with open(path, "w") as output:
            json.dump(file(), output)
        args = parser.parse_args(["--deepspeed", "--deepspeed_config", path])
        self.assertTrue(args.deepspeed)
        with started(config=None, args=args) as engine:
            self.assertEqual(engine.zero_optimization_stage(), 3)
            self.assertEqual(engine.gradient_clipping(), 1.0)

    def test_without_an_optimizer(self) -> None:
        config = file()
        del config["optimizer"]
        with started(config=config) as engine:
            self.assertIsNone(engine.optimizer)
            plain = models.model()
            ids = models.batch(0)
            self.assertTrue(torch.equal(engine(ids), plain(ids)))
            with self.assertRaisesRegex(zinf.InvalidArgument, "needs an optimizer"):
                engine.backward(torch.zeros(()))
            with self.assertRaisesRegex(zinf.InvalidArgument, "needs an optimizer"):
                engine.step()

    def test_the_engine_is_a_module(self) -> None:
        with started() as engine:
            self.assertIsInstance(engine, deepspeed.DeepSpeedEngine)
            self.assertEqual(next(iter(engine.state_dict())), "module.embed.weight")
            self.assertEqual(next(engine.named_parameters())[0], "module.embed.weight")
            values = {name: value + 1 for name, value in engine.state_dict().items()}
            engine.load_state_dict(values)
            self.assertTrue(models.is_same(list(values.values()), models.values(engine.module)))
            self.assertIs(engine.checkpointing, engine.module.checkpointing)  # of the model
            self.assertFalse(engine.eval().module.training)
            self.assertTrue(engine.train().module.training)
            with self.assertRaises(AttributeError):
                engine.nothing  # noqa: B018 - reading it is the test
            for name in ("compile", "offload_states", "reload_states"):
                with self.assertRaises(zinf.Unsupported):
                    getattr(engine, name)()

    def test_names_of_deepspeed(self) -> None:
        with self.assertRaisesRegex(AttributeError, "no 'init_inference' of DeepSpeed"):
            deepspeed.init_inference  # noqa: B018 - reading it is the test
        accelerator = deepspeed.get_accelerator()
        self.assertEqual(accelerator.current_device_name(), "cpu")
        with self.assertRaisesRegex(AttributeError, "zinf.stats"):
            accelerator.memory_allocated()
        deepspeed.init_distributed("nccl")
        try:
            self.assertEqual((deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()), (0, 1))
            deepspeed.comm.barrier()
            with self.assertRaisesRegex(AttributeError, "names of torch.distributed"):
                deepspeed.comm.nothing  # noqa: B018 - reading it is the test
        finally:
            end_group()
        os.environ["WORLD_SIZE"] = "2"
        try:
            with self.assertRaisesRegex(zinf.InvalidArgument, "MASTER_ADDR is not set"):
                deepspeed.init_distributed()
            with self.assertRaisesRegex(zinf.InvalidArgument, "without torch.distributed"):
                deepspeed.initialize(model=models.model(), config=file(), dist_init_required=False)
        finally:
            del os.environ["WORLD_SIZE"]


class Zero(Case):
    def test_a_model_built_inside_init(self) -> None:
        with deepspeed.zero.Init(config_dict_or_path=file()):
            module = models.model()
        with deepspeed.zero.Init(enabled=False):
            self.assertIs(type(nn.Linear(2, 2).weight), nn.Parameter)
        with started(module) as engine:
            self.assert_close(train(engine, 3), train_plain(3))

    def test_gathered_parameters(self) -> None:
        with started() as engine:
            train(engine, 1)
            module = engine.module
            with deepspeed.zero.GatheredParameters(module.blocks.parameters()):
                self.assertTrue(all(unit.is_resident for unit in engine.zinf.units[:3]))
                with self.assertRaises(zinf.ReadOnlyParameter):
                    module.blocks[0].out.weight.data.zero_()
            step = engine.zinf.committed_step
            with deepspeed.zero.GatheredParameters(list(module.parameters()), modifier_rank=0):
                pass  # nothing is written: optimizer state stays
            self.assertEqual(engine.zinf.session.committed_step, step)
            params = [module.blocks[0].out.weight, module.blocks[2].out.weight]
            with deepspeed.zero.GatheredParameters(params, modifier_rank=0), torch.no_grad():
                self.assertIs(type(params[0]), nn.Parameter)
                params[0].data = torch.ones(params[0].shape)
                params[1][0, :2] = 2
                with self.assertRaises(zinf.ReadOnlyParameter):
                    module.blocks[1].out.weight.data.zero_()
            self.assertEqual(float(params[0].detach().min()), 1)
            self.assertEqual(params[1].detach()[0, :2].tolist(), [2, 2])
            with self.assertRaises(zinf.ReadOnlyParameter):
                params[0].data.zero_()
            with (
                self.assertRaisesRegex(zinf.InvalidArgument, "got another shape"),
                deepspeed.zero.GatheredParameters(params, modifier_rank=0),
            ):
                params[0].data = torch.zeros(3)
            with (
                self.assertRaises(KeyError),
                deepspeed.zero.GatheredParameters(params, modifier_rank=0),
            ):
                params[0].data.zero_()
                raise KeyError
            self.assertEqual(float(params[0].detach().min()), 1)
            with self.assertRaisesRegex(zinf.InvalidArgument, "ranks 0 to 0"):
                deepspeed.zero.GatheredParameters(params, modifier_rank=1)
            with deepspeed.zero.GatheredParameters(params, 0, enabled=False):
                pass
            train(engine, 1, 1)

    def test_before_initialize_it_does_nothing(self) -> None:
        with deepspeed.zero.Init():
            module = models.model()
        with deepspeed.zero.GatheredParameters(module.head.weight, modifier_rank=0):
            module.head.weight.data.fill_(3)
        with self.assertRaisesRegex(zinf.InvalidArgument, "only the values of rank 0"):
            deepspeed.zero.GatheredParameters(module.head.weight, modifier_rank=1)
        with started(module) as engine:
            self.assertEqual(float(engine.module.head.weight.detach().max()), 3)


class Checkpoints(Case):
    def test_continue_with_the_same_bits(self) -> None:
        directory = house.folder("saves")
        config = file(gradient_accumulation_steps=2, scheduler=WARMUP)
        with started(config=config) as engine:
            train(engine, 3)
            self.assertTrue(engine.save_checkpoint(directory, client_state={"epoch": [1]}))
            whole = train(engine, 3, 3)
            values = models.values(engine.module)
            path, client = engine.load_checkpoint(directory)
            self.assertEqual(path, os.path.join(directory, "global_step3"))
            self.assertEqual(client, {"epoch": [1]})
            self.assertEqual(engine.global_steps, 3)
            self.assertEqual(engine.micro_steps, 6)
            self.assertEqual(train(engine, 3, 3), whole)
            self.assertTrue(models.is_same(values, models.values(engine.module)))
        files = ["client_state_0.pt", "engine_states.pt", "model.safetensors", "zinf.json"]
        self.assertEqual(sorted(os.listdir(path)), files)
        # Another process would do this.
        with started(config=config) as engine:
            engine.load_checkpoint(directory)
            self.assertEqual(train(engine, 3, 3), whole)
            self.assertTrue(models.is_same(values, models.values(engine.module)))

    def test_only_the_weights(self) -> None:
        directory = house.folder("weights")
        with started() as engine:
            train(engine, 2)
            engine.save_checkpoint(directory, tag="a", client_state={"x": 1})
            values = models.values(engine.module)
        for keys in ({"load_module_only": True}, {"load_optimizer_states": False}):
            with self.subTest(**keys), started() as engine:
                self.assertEqual(engine.load_checkpoint(directory, "a", **keys)[1], {"x": 1})
                self.assertTrue(models.is_same(values, models.values(engine.module)))
                self.assertEqual(engine.global_steps, 0 if "load_module_only" in keys else 2)
                train(engine, 1)

    def test_a_removed_checkpoint_takes_its_snapshot_along(self) -> None:
        directory = house.folder("removed")
        with started() as engine:
            for _ in range(2):
                train(engine, 1)
                engine.save_checkpoint(directory)
            self.assertEqual(len(self.snapshots(engine)), 2)
            engine.save_checkpoint(directory, tag="global_step2")  # again: one for each directory
            self.assertEqual(len(self.snapshots(engine)), 2)
            shutil.rmtree(os.path.join(directory, "global_step1"))
            train(engine, 1)
            engine.save_checkpoint(directory, save_latest=False)
            self.assertEqual(len(self.snapshots(engine)), 2)
            with open(os.path.join(directory, "latest")) as latest:
                self.assertEqual(latest.read(), "global_step2")

    def snapshots(self, engine: Any) -> list[Any]:
        found = zinf.admin.snapshots(socket_path=house.socket_path())
        return [s for s in found if s["job"] == engine.zinf.session.job]

    def test_damaged_and_missing_ones_are_refused(self) -> None:
        directory = house.folder("damaged")
        with started() as engine:
            self.assertEqual(engine.load_checkpoint(directory), (None, None))
            for tag, text in (("none", "no such directory"), ("../x", "no name of a directory")):
                with self.assertRaisesRegex(zinf.ZinfError, text):
                    engine.load_checkpoint(directory, tag)
            os.mkdir(os.path.join(directory, "empty"))
            with self.assertRaisesRegex(zinf.ZinfError, "it has no files"):
                engine.load_checkpoint(directory, "empty")
            with self.assertRaisesRegex(zinf.InvalidArgument, "save_dir"):
                engine.save_checkpoint("")
            with self.assertRaisesRegex(zinf.Unsupported, "custom_load_fn"):
                engine.load_checkpoint(directory, custom_load_fn=print)
            engine.backward(models.loss_of(engine, models.batch(0)))
            with self.assertRaisesRegex(zinf.InvalidArgument, "while a step is under way"):
                engine.save_checkpoint(directory)
            engine.step()
            engine.save_checkpoint(directory, tag="a")
            states = os.path.join(directory, "a", "engine_states.pt")
            with open(states, "r+b") as output:
                output.truncate(100)
            with self.assertRaisesRegex(zinf.ZinfError, "engine_states.pt: cannot be read"):
                engine.load_checkpoint(directory, "a")
            engine.save_checkpoint(directory, tag="a")
            for snapshot in self.snapshots(engine):
                zinf.admin.delete_snapshot(
                    f"{snapshot['job']}/{snapshot['name']}", socket_path=house.socket_path()
                )
            with self.assertRaisesRegex(zinf.ZinfError, "needs the snapshot"):
                engine.load_checkpoint(directory, "a")
            self.assertEqual(len(train(engine, 1, 1)), 3)  # the engine goes on

    def test_weights_in_one_file(self) -> None:
        directory = house.folder("file")
        module = models.model()
        module.norm.weight.requires_grad_(False)
        with started(module) as engine:
            engine.save_16bit_model(directory)
            engine.save_16bit_model(directory, "m.safetensors", exclude_frozen_parameters=True)
            values = engine.module.state_dict()
        found = torch.load(os.path.join(directory, "pytorch_model.bin"))
        self.assertEqual(list(found), list(values))
        self.assertTrue(models.is_same(list(found.values()), list(values.values())))
        with zinf.weights.Reader(directory, stem="m") as reader:
            self.assertNotIn("norm.weight", reader)
            self.assertEqual(len(reader), len(values) - 2)  # the head is tied
            target = torch.empty(values["norm.bias"].shape)
            reader.read_into("norm.bias", target)
            self.assertTrue(torch.equal(target, values["norm.bias"]))


def write_zero(
    directory: str,
    stage: int,
    values: dict[str, torch.Tensor],
    ranks: int,
    counts: tuple[int, int] | None = None,
) -> None:
    """Write a checkpoint as DeepSpeed does, with two parameter groups.

    counts: the steps of the groups, whose moments are twice the weights and their squares. None: no
    optimizer state.
    """
    os.makedirs(directory)
    names = list(values)
    frozen = names[-1:] if stage else []
    groups = [names[:3], names[3 : len(names) - len(frozen)]]
    shapes = [
        collections.OrderedDict((name, values[name].shape) for name in group) for group in groups
    ]
    parts: dict[str, list[torch.Tensor]] = {}
    for name, value in values.items():
        width = -(-value.numel() // ranks)
        flat = torch.cat([value.reshape(-1), torch.zeros(width * ranks - value.numel())])
        parts[name] = list(flat.split(width))
    for rank in range(ranks):
        state: dict[str, Any] = {
            "module": values if stage == 0 else {},
            "buffer_names": [],
            "param_shapes": shapes if stage else None,
            "frozen_param_shapes": {name: values[name].shape for name in frozen},
            "frozen_param_fragments": {
                name: parts[name][rank] if stage == 3 else values[name] for name in frozen
            },
            "shared_params": {"head.weight": "embed.weight"},
            "lr_scheduler": {"last_batch_iteration": 4},
            "global_steps": 5,
            "skipped_steps": 1,
            "ds_version": "0.19.8",
            "epoch": 7,
        }
        start = "zero_pp_rank_0_" if stage == 3 else ""
        if stage == 3:
            start = f"zero_pp_rank_{rank}_"
        torch.save(state, os.path.join(directory, f"{start}mp_rank_00_model_states.pt"))
        if not stage:
            return
        vectors = []
        for group in groups:
            if stage == 3:
                vectors.append(torch.cat([parts[name][rank] for name in group]))
                continue
            whole = torch.cat([values[name].reshape(-1) for name in group])
            whole = torch.cat([whole, torch.zeros(-whole.numel() % (2 * ranks))])
            vectors.append(whole.chunk(ranks)[rank])
        key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
        optimizer = {
            "zero_stage": stage,
            "partition_count": ranks if stage == 3 else [ranks] * 2,
            key: vectors,
            "loss_scaler": unittest.SkipTest("x"),  # a class that is not loaded
        }
        if counts is not None:
            entries = [
                {"step": torch.tensor(float(n)), "exp_avg": 2 * v, "exp_avg_sq": v * v}
                for n, v in zip(counts, vectors)
            ]
            optimizer["optimizer_state_dict" if stage == 3 else "base_optimizer_state"] = {
                "state": dict(enumerate(entries)),
                "param_groups": [{"lr": 0.25, "betas": (0.8, 0.9), "params": [0]}],
            }
        path = os.path.join(directory, f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
        torch.save({"optimizer_state_dict": optimizer}, path)


class DeepSpeedCheckpoints(Case):
    def values(self) -> dict[str, torch.Tensor]:
        torch.manual_seed(3)
        found = models.Transformer().state_dict()
        return {name: value for name, value in found.items() if name != "head.weight"}

    def test_weights_of_each_stage(self) -> None:
        directory = house.folder("zero")
        values = self.values()
        for stage, ranks in ((0, 1), (1, 2), (2, 3), (3, 1), (3, 3)):
            tag = f"stage{stage}-{ranks}"
            write_zero(os.path.join(directory, tag), stage, values, ranks)
            with self.subTest(tag), started(config=file(scheduler=WARMUP)) as engine:
                text = "load with load_optimizer_states=False"
                with self.assertRaisesRegex(zinf.ZinfError, text):
                    engine.load_checkpoint(directory, tag)
                found = engine.load_checkpoint(directory, tag, load_optimizer_states=False)
                self.assertEqual(found, (os.path.join(directory, tag), {"epoch": 7}))
                loaded = engine.module.state_dict()
                for name, value in values.items():
                    self.assertTrue(torch.equal(loaded[name], value), name)
                self.assertEqual((engine.global_steps, engine.skipped_steps), (5, 1))
                self.assertEqual(engine.lr_scheduler.last_batch_iteration, 4)
                train(engine, 1)

    def test_optimizer_state_of_each_stage(self) -> None:
        directory = house.folder("zero-state")
        values = self.values()
        frozen = list(values)[-1]
        for stage, ranks in ((1, 2), (2, 3), (3, 1), (3, 3)):
            tag = f"stage{stage}-{ranks}"
            write_zero(os.path.join(directory, tag), stage, values, ranks, (6, 6))
            module = models.model()
            dict(module.named_parameters())[frozen].requires_grad_(False)
            with self.subTest(tag), started(module) as engine:
                engine.load_checkpoint(directory, tag)
                optimizer = engine.optimizer
                self.assertEqual(engine.zinf.session.update_count, 6)
                self.assertEqual(optimizer.param_groups[0]["lr"], 0.25)
                self.assertEqual(optimizer.param_groups[0]["betas"], (0.8, 0.9))
                names = [name for name, item in engine.module.named_parameters()]
                state = optimizer.state_dict(tensors=True)["state"]
                found = [name for name in names if name != frozen]
                self.assertEqual(len(state), len(found))
                for name, entry in zip(found, state.values()):
                    self.assertTrue(torch.equal(entry["exp_avg"], 2 * values[name]), name)
                    self.assertTrue(torch.equal(entry["exp_avg_sq"], values[name].square()), name)
                train(engine, 1)

    def test_masters_of_parameters_in_16_bits(self) -> None:
        directory = house.folder("zero-master")
        values = self.values()
        last = list(values)[-1]
        write_zero(os.path.join(directory, "x"), 3, values, 2, (6, 6))
        module = models.model()
        dict(module.named_parameters())[last].requires_grad_(False)
        with started(module, config=file(bf16={"enabled": True})) as engine:
            engine.load_checkpoint(directory, "x")
            for unit in engine.zinf.units:
                for slot in unit.trained:
                    master = torch.empty(slot.shape)
                    kind = zinf.StateKind.MASTER
                    session = engine.zinf.session
                    session.state_read(slot.index, kind, master.data_ptr(), master.numel())
                    self.assertTrue(torch.equal(master, values[slot.name]), slot.name)
            train(engine, 1)

    def test_optimizer_state_that_does_not_fit_is_refused(self) -> None:
        directory = house.folder("zero-unfit")
        values = self.values()
        write_zero(os.path.join(directory, "counts"), 2, values, 1, (6, 7))
        write_zero(os.path.join(directory, "good"), 3, values, 1, (6, 6))
        with started(config=file()) as engine:
            before = models.values(engine.module)
            with self.assertRaisesRegex(zinf.ZinfError, "different numbers of steps \\(6, 7\\)"):
                engine.load_checkpoint(directory, "counts")
            # The checkpoint has the last parameter frozen, the engine trains it.
            with self.assertRaisesRegex(zinf.ZinfError, "has no optimizer state of parameter"):
                engine.load_checkpoint(directory, "good")
            self.assertTrue(models.is_same(before, models.values(engine.module)))
        lion = file(optimizer={"type": "Adagrad", "params": {"lr": 0.1}})
        with started(config=lion) as engine:
            text = "has no sum, but exp_avg, exp_avg_sq: another optimizer wrote it"
            with self.assertRaisesRegex(zinf.ZinfError, text):
                engine.load_checkpoint(directory, "good")

    def test_what_cannot_be_read_is_refused(self) -> None:
        directory = house.folder("zero-bad")
        values = self.values()

        def path(tag: str, name: str) -> str:
            return os.path.join(directory, tag, name)

        def refused(tag: str, text: str) -> None:
            with self.assertRaisesRegex(zinf.ZinfError, text):
                ZeroCheckpoint(os.path.join(directory, tag))

        for tag in ("lost", "tensor", "expert", "damaged", "nvme", "short", "universal"):
            write_zero(os.path.join(directory, tag), 2, values, 2)
        os.mkdir(path("universal", "zero"))
        refused("universal", "is a universal checkpoint")
        write_zero(os.path.join(directory, "bare"), 3, values, 1)
        os.unlink(path("bare", "zero_pp_rank_0_mp_rank_00_optim_states.pt"))
        refused("bare", "\\*_optim_states.pt with its weights are missing")
        os.unlink(path("lost", "zero_pp_rank_1_mp_rank_00_optim_states.pt"))
        refused("lost", "2 ranks wrote optimizer states, and 1 files are there")
        shutil.copy(
            path("tensor", "mp_rank_00_model_states.pt"),
            path("tensor", "mp_rank_01_model_states.pt"),
        )
        refused("tensor", "of tensor parallelism")
        shutil.copy(
            path("expert", "mp_rank_00_model_states.pt"),
            path("expert", "layer_0_expert_0_mp_rank_00_model_states.pt"),
        )
        refused("expert", "of experts or of a pipeline")
        with open(path("damaged", "mp_rank_00_model_states.pt"), "r+b") as output:
            output.truncate(300)
        refused("damaged", "cannot be read")
        for tag, change in (("nvme", lambda v: None), ("short", lambda v: [x[:2] for x in v])):
            name = path(tag, "zero_pp_rank_0_mp_rank_00_optim_states.pt")
            state = {"zero_stage": 2, "partition_count": [2, 2]}
            vectors = change([torch.zeros(4)] * 2)
            state["single_partition_of_fp32_groups"] = vectors
            torch.save({"optimizer_state_dict": state}, name)
        refused("nvme", "the weights lay on NVMe")
        refused("short", "elements, and the files of the ranks have")

    def test_another_model_is_refused(self) -> None:
        directory = house.folder("zero-other")
        values = self.values()
        write_zero(os.path.join(directory, "few"), 2, dict(list(values.items())[:8]), 1)
        wrong = {**values, "norm.bias": torch.zeros(3)}
        write_zero(os.path.join(directory, "wrong"), 3, wrong, 1)
        with started() as engine:
            before = models.values(engine.module)
            options = {"load_optimizer_states": False}
            with self.assertRaisesRegex(zinf.ZinfError, "lacks .* tensors of the model"):
                engine.load_checkpoint(directory, "few", **options)
            with self.assertRaisesRegex(zinf.ZinfError, "'norm.bias' has the shape \\(3,\\)"):
                engine.load_checkpoint(directory, "wrong", **options)
            self.assertTrue(models.is_same(before, models.values(engine.module)))
            engine.load_checkpoint(directory, "few", load_module_strict=False, **options)
            self.assertTrue(torch.equal(models.values(engine.module)[0], values["embed.weight"]))


class Ranks(Case):
    def test_two_equal_one_with_both_batches(self) -> None:
        plain = train_plain(4, ranks=(0, 1), accumulation=2)
        folder = house.folder("ranks")
        sent = models.run_ranks(2, train_rank, folder)
        for one in sent:
            self.assertEqual(one[0][1::3], sent[0][0][1::3])  # norms are global
        first, second = (one[0] for one in sent)
        self.assert_close([(a + b) / 2 for a, b in zip(first[::3], second[::3])], plain[::3])
        self.assert_close(first[1::3], plain[1::3])
        for rank, (_, again, client, mean, order) in enumerate(sent):
            self.assertEqual(again[0], again[1])  # the same bits after load_checkpoint()
            self.assertEqual(client, {"rank": rank})
            self.assertEqual(mean, 5.0)  # what rank 1 wrote
            self.assertEqual(order, list(torch.utils.data.DistributedSampler(range(9), 2, rank)))
        self.assertTrue(os.path.exists(os.path.join(folder, "global_step4", "client_state_1.pt")))

    def test_a_killed_script_continues_with_its_checkpoint(self) -> None:
        folder = house.folder("killed")
        environment = {**house.rank_environment(0, 1, ""), "ZINF_JOB": ""}
        killed = models.Process(environment, train_until_killed, folder)
        sent = []
        for value in killed.values():
            sent.append(value)
            if len(sent) == 6:  # of 8 steps; the checkpoint is of step 4
                killed.kill()
                break
        self.assertEqual(killed.finish(), -9)
        again = models.Process(environment, train_until_killed, folder)
        resumed = list(again.values())
        self.assertEqual(again.finish(), 0)
        self.assertEqual(len(resumed), 4)
        self.assertEqual(resumed[:2], sent[4:])


def train_until_killed(send: Any, folder: str) -> None:
    """Train with dropout; the random state is the script's."""
    torch.manual_seed(5)
    module = models.Transformer(dropout=0.2)
    engine, *_ = deepspeed.initialize(model=module, config=file(scheduler=WARMUP), timeout=30)
    _, client = engine.load_checkpoint(folder)
    if client is not None:
        torch.set_rng_state(client["random"])
    while engine.global_steps < 8:
        send(train(engine, 1, engine.global_steps))
        if engine.global_steps == 4:
            engine.save_checkpoint(folder, client_state={"random": torch.get_rng_state()})
    engine.zinf.close(delete_job=True)


def train_rank(send: Any, folder: str) -> None:
    """Train as one of two ranks."""
    rank = int(os.environ["RANK"])
    deepspeed.init_distributed(init_method=f"file://{folder}/group")
    config = file(gradient_accumulation_steps=2)
    data = torch.arange(9)
    engine, _, loader, _ = deepspeed.initialize(
        model=models.model(), config=config, training_data=data, timeout=30
    )
    losses = train(engine, 4, rank=rank)
    engine.save_checkpoint(folder, client_state={"rank": rank})
    again = [train(engine, 2, 4, rank)]
    _, client = engine.load_checkpoint(folder)
    again.append(train(engine, 2, 4, rank))
    weight = engine.module.blocks[0].out.weight
    with deepspeed.zero.GatheredParameters([weight], modifier_rank=1):
        if rank == 1:
            weight.data.fill_(5)
    mean = float(weight.detach().mean())
    train(engine, 1, 6, rank)
    send(losses)
    send(again)
    send(client)
    send(mean)
    send([int(item) for batch in loader for item in batch])
    engine.destroy()


if __name__ == "__main__":
    unittest.main()
