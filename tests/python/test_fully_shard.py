# SPDX-License-Identifier: Apache-2.0
"""zinf.fully_shard(): a script of FSDP2 over zinf.

Goal: losses are torch's within 1e-5 with nested, tied, frozen and unused parameters, with both
kinds of checkpointing; and what zinf does not do is refused by name. Method: the script makes
torch's optimizer from the parameters, beside the same loop without fully_shard().
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import pickle
import types
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import house
import torch_models as models
import zinf
from test_engine import Adapted, Shared, Sometimes, pair, run_rows
from test_training import TrainingCase
from torch import nn
from zinf import scratch
from zinf.fsdp import shard

zinf_fsdp: Any = zinf.fsdp


@contextlib.contextmanager
def sharded(
    module: Any, blocks: Any = "blocks", *, nested: tuple[str, ...] = (), **settings: Any
) -> Iterator[Any]:
    """Call fully_shard() of the blocks and of the root, as scripts do. The job goes at the end."""
    options = {
        name: settings.pop(name)
        for name in ("mp_policy", "offload_policy", "reshard_after_forward")
        if name in settings
    }
    root_options = {**options, **settings.pop("root", {})}
    for block in getattr(module, blocks) if blocks else ():
        for name in nested:
            zinf.fully_shard(block.get_submodule(name), **options)
        zinf.fully_shard(block, **options)
    config = house.config(**{"strategy": "zero3", **settings})
    assert zinf.fully_shard(module, config=config, **root_options) is module
    try:
        yield module
    finally:
        engine = zinf.engine_of(module)
        if engine is not None:
            engine.close(delete_job=True)


class Losses(TrainingCase):
    def test_equal_torch_with_both_kinds_of_checkpointing(self) -> None:
        for checkpointing in (None, False, True):
            plain = models.model(checkpointing=checkpointing)
            torchs = models.train(plain, models.adamw(plain), clip=1.0)
            first: Any = None
            for reshards in (None, True, False):
                for nested in ((), ("norm1", "mix")):
                    with (
                        self.subTest(checkpointing=checkpointing, reshards=reshards, nested=nested),
                        sharded(
                            models.model(checkpointing=checkpointing),
                            nested=nested,
                            reshard_after_forward=reshards,
                            offload_policy=zinf.NVMeOffloadPolicy(),
                        ) as module,
                    ):
                        optimizer = models.adamw(module)
                        self.assertIsInstance(optimizer, torch.optim.AdamW)
                        self.assertIsInstance(optimizer, zinf.optim.AdamW)
                        engine = zinf.engine_of(module)
                        self.assertEqual(len(engine.units), 4 + 3 * len(nested))
                        ours = models.train(module, optimizer, clip=1.0)
                        self.assert_close(ours, torchs)
                        first = first or (ours, models.values(module))
                        self.assertEqual(ours, first[0])
                        self.assertTrue(models.is_same(models.values(module), first[1]))
                        self.assertFalse(any(unit.holds for unit in engine.units))

    def test_of_each_optimizer_and_of_schedulers_equal_torch(self) -> None:
        def run(module: Any, kind: Any, **options: Any) -> list[float]:
            optimizer = kind(module.parameters(), **options)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
            losses = []
            for _ in range(5):
                losses += models.train(module, optimizer, steps=1)
                schedule.step()
            return losses

        for name, options in (
            ("AdamW", {"lr": 1e-2}),
            ("Adam", {"lr": 1e-2, "weight_decay": 0.1}),
            ("SGD", {"lr": 1e-2, "momentum": 0.9}),
            ("Adagrad", {"lr": 1e-2}),
        ):
            plain = models.model(count=1)
            torchs = run(plain, getattr(torch.optim, name), **options)
            for source in (torch.optim, zinf.optim):
                with (
                    self.subTest(name, source=source.__name__),
                    sharded(models.model(count=1)) as module,
                ):
                    self.assert_close(run(module, getattr(source, name), **options), torchs)

    def test_with_shared_blocks_and_parameters(self) -> None:
        for checkpointing in (None, False, True):
            plain, module = pair(Shared, checkpointing=checkpointing)
            torchs = models.train(plain, models.adamw(plain), steps=4)
            with self.subTest(checkpointing=checkpointing), sharded(module):
                optimizer = models.adamw(module)
                self.assert_close(models.train(module, optimizer, steps=4), torchs)

    def test_with_frozen_parameters_as_lora_has(self) -> None:
        plain, module = pair(Adapted)
        torchs = run_rows(plain, models.adamw(plain))
        former = [block.weight.detach().clone() for block in module.blocks]
        with sharded(module, offload_policy=zinf.CPUOffloadPolicy()):
            self.assert_close(run_rows(module, models.adamw(module)), torchs)
            found = [block.weight.detach().clone() for block in module.blocks]
            self.assertTrue(models.is_same(former, found))
        _, module = pair(Adapted)
        with sharded(module):  # only the trained ones are given to the optimizer
            trained = [item for item in module.parameters() if item.requires_grad]
            optimizer = torch.optim.AdamW(trained, lr=1e-3)
            self.assert_close(run_rows(module, optimizer), torchs)

    def test_with_unused_parameters(self) -> None:
        plain, module = pair(Sometimes)
        plain.uses[2] = module.uses[2] = False
        torchs = run_rows(plain, torch.optim.SGD(plain.parameters(), 0.1))
        with sharded(module, find_unused_parameters=True):
            optimizer = torch.optim.SGD(module.parameters(), 0.1)
            self.assert_close(run_rows(module, optimizer), torchs)
        _, module = pair(Sometimes)
        module.uses[2] = False
        with sharded(module):
            optimizer = torch.optim.SGD(module.parameters(), 0.1)
            module(torch.ones(2, 8)).sum().backward()
            with self.assertRaisesRegex(zinf.MissingGradient, "blocks.2.weight"):
                optimizer.step()

    def test_of_micro_batches_equal_torch(self) -> None:
        def run(module: Any, optimizer: Any, say: Any, after: bool = True) -> list[float]:
            losses = []
            for step in range(4):
                for micro in range(3):
                    if say is not None:
                        getattr(module, say)(micro == 2)
                        module.set_reshard_after_backward(after or micro == 2)
                    loss = models.loss_of(module, models.batch(3 * step + micro)) / 3
                    loss.backward()
                    losses.append(loss.item())
                optimizer.step()
                optimizer.zero_grad()
            return losses

        plain = models.model()
        torchs = run(plain, models.adamw(plain), None)
        for say in ("set_requires_gradient_sync", "set_is_last_backward"):
            for after in (True, False):
                with self.subTest(say, after=after), sharded(models.model()) as module:
                    module.set_requires_gradient_sync(False)  # before the model moves
                    self.assert_close(run(module, models.adamw(module), say, after), torchs)
                    with self.assertRaisesRegex(zinf.Unsupported, "Call it of the root"):
                        module.blocks[0].set_requires_gradient_sync(False)
        with sharded(models.model(), gradient_accumulation_steps=3) as module:
            self.assert_close(run(module, models.adamw(module), None), torchs)

    def test_of_bfloat16_equal_those_of_a_float32_sum(self) -> None:
        half = zinf.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        whole = zinf.MixedPrecisionPolicy(torch.bfloat16, output_dtype=torch.float32)
        plain = models.model(count=1)
        torchs = models.train(plain, models.adamw(plain))
        root = {"mp_policy": whole}
        with sharded(models.model(count=1), mp_policy=half, root=root) as module:
            ours = models.train(module, models.adamw(module))
            engine = zinf.engine_of(module)
            self.assertEqual(module.norm.weight.dtype, torch.bfloat16)
            self.assertEqual(engine.units[0].slots[0].grad.dtype, torch.float32)
            self.assertEqual(module(models.batch(0)).dtype, torch.float32)
            x = torch.ones(1, 2, models.WIDTH)
            self.assertEqual(module.blocks[0](x).dtype, torch.bfloat16)  # its input is cast
        for mine, other in zip(ours, torchs):
            self.assertLessEqual(abs(mine - other), 0.05 * other)

    def test_of_two_ranks_equal_torch(self) -> None:
        plain = models.model(checkpointing=False)
        torchs = models.train(plain, models.adamw(plain), clip=1.0, ranks=(0, 1))
        found = models.run_ranks(2, train_rank)
        means = [sum(numbers) / 2 for numbers in zip(found[0][0], found[1][0])]
        for mine, other in zip(means, torchs):
            self.assertLessEqual(abs(mine - other), 1e-5 * abs(other))


def train_rank(send: Any) -> None:
    module = models.model(checkpointing=False)
    for block in module.blocks:
        zinf.fully_shard(block)
    zinf.fully_shard(module, timeout=30, **models.NVME)
    optimizer = models.adamw(module)
    numbers = models.train(module, optimizer, clip=1.0, ranks=(int(os.environ["RANK"]),))
    zinf.engine_of(module).close()
    send(numbers)


class Modules(unittest.TestCase):
    def test_bring_their_parameters_when_asked(self) -> None:
        with sharded(models.model(), param_budget_bytes="1M", **models.NVME) as module:
            block = module.blocks[1]
            block.unshard()  # nothing to do yet
            self.assertIsNotNone(block.unshard(async_op=True))
            block.reshard()
            optimizer = models.adamw(module)
            unit = zinf.engine_of(module).find_units("blocks.1")[0]
            self.assertFalse(unit.is_resident)
            block.unshard()
            block.unshard()
            self.assertTrue(unit.is_resident)
            block.reshard()
            self.assertFalse(unit.is_resident)
            handle = block.unshard(async_op=True)
            handle.wait()
            handle.wait()
            self.assertTrue(unit.is_resident)
            loss = models.loss_of(module, models.batch(0))
            self.assertFalse(unit.is_resident)  # forward ended it
            module.set_reshard_after_forward(False)
            loss = models.loss_of(module, models.batch(0))
            self.assertTrue(unit.is_resident)
            loss.backward()
            self.assertFalse(unit.is_resident)
            module.set_reshard_after_backward(False)
            optimizer.zero_grad()
            models.loss_of(module, models.batch(0)).backward()
            self.assertTrue(unit.is_resident)
            optimizer.step()  # a step changes the parameters
            self.assertFalse(unit.is_resident)

    def test_prefetch_what_they_are_told(self) -> None:
        with sharded(models.model(count=4), **models.NVME) as module:
            blocks = list(module.blocks)
            blocks[0].set_modules_to_forward_prefetch([blocks[2], blocks[3]])
            optimizer = models.adamw(module)
            blocks[3].set_modules_to_backward_prefetch([blocks[1]])
            engine = zinf.engine_of(module)
            asked: list[tuple[int, bool]] = []
            stock = engine.session.prefetch

            def note(index: int) -> None:
                asked.append((index, engine._in_backward))
                stock(index)

            engine.session.prefetch = note
            index = {unit.name: unit.index for unit in engine.units}
            models.loss_of(module, models.batch(0)).backward()
            self.assertEqual(
                asked,
                [
                    (index["blocks.2"], False),
                    (index["blocks.3"], False),
                    (index["blocks.1"], True),
                ],
            )
            optimizer.step()
            with self.assertRaisesRegex(zinf.InvalidArgument, r"call fully_shard\(\) of it"):
                blocks[0].set_modules_to_forward_prefetch([module.norm])

    def test_save_and_load_and_copy(self) -> None:
        plain = models.model()
        with sharded(models.model()) as module:
            before = copy.deepcopy(module)
            self.assertIs(type(before), models.Transformer)
            optimizer = models.adamw(module)
            self.assertTrue(models.is_same(models.values(module), models.values(plain)))
            self.assertEqual(list(module.state_dict()), list(plain.state_dict()))
            copied = copy.deepcopy(module)
            self.assertIs(type(copied), models.Transformer)
            self.assertIs(type(copied.blocks[0]), models.Block)
            self.assertIs(copied.head.weight, copied.embed.weight)
            loaded = pickle.load(io.BytesIO(pickle.dumps(module)))
            for other in (before, copied, loaded):
                loss = models.loss_of(other, models.batch(0))
                self.assertEqual(loss.item(), models.loss_of(plain, models.batch(0)).item())
                loss.backward()
            models.train(module, optimizer, steps=2)
            module.load_state_dict(plain.state_dict())
            self.assertTrue(models.is_same(models.values(module), models.values(plain)))
            self.assertEqual(type(module).__name__, "FSDPTransformer")

    def test_run_for_inference(self) -> None:
        plain = models.model()
        with sharded(models.model(), is_forward_only=True) as module, torch.no_grad():
            self.assertIsNone(zinf.engine_of(module))
            ids = models.batch(0)
            self.assertTrue(torch.equal(module(ids), plain(ids)))
            self.assertIsNotNone(zinf.engine_of(module))
            self.assertTrue(torch.equal(module(ids), plain(ids)))

    def test_of_a_lazy_model_have_the_bits_of_an_ordinary_one(self) -> None:
        with zinf.init():
            module = models.model()
        with sharded(module):
            models.adamw(module)
            self.assertTrue(models.is_same(models.values(module), models.values(models.model())))

    def test_end_a_step_that_an_exception_ended(self) -> None:
        plain = models.model()
        torchs = models.train(plain, models.adamw(plain), steps=2)
        with sharded(models.model()) as module:
            optimizer = models.adamw(module)
            models.loss_of(module, models.batch(9)).backward()
            module.reset_iter_state()
            for mine, other in zip(models.train(module, optimizer, steps=2), torchs):
                self.assertAlmostEqual(mine, other, delta=1e-5 * other)


class Jobs(unittest.TestCase):
    def test_have_the_strategy_zero3_unless_another_is_named(self) -> None:
        deepspeed = {"zero_optimization": {"stage": 2}}
        for variable, options, expected in (
            ("", {}, "zero3"),
            ("", {"config": {"timeout": 3}}, "zero3"),
            ("", {"config": {"strategy": "zero1"}}, None),
            ("", {"config": zinf.Config()}, None),
            ("", {"config": deepspeed}, None),
            ("", {"strategy": "zero2"}, "zero2"),
            ("zero1", {}, None),
        ):
            module = zinf.fully_shard(models.model(), **options)
            root = shard.shard_of(module)
            with (
                self.subTest(variable=variable, **options),
                mock.patch.dict(os.environ, {"ZINF_STRATEGY": variable}),
            ):
                self.assertEqual(shard._merge([root], root)[1].get("strategy"), expected)

    def test_without_a_name_end_with_the_script(self) -> None:
        for _ in range(2):
            found = models.run_ranks(1, train_scratch)[0]
            self.assertEqual(found[1], found[2])
            self.assertTrue(found[0].startswith("fsdp-"))
            names = [job["name"] for job in zinf.admin.jobs(socket_path=house.socket_path())]
            self.assertFalse([name for name in names if name.startswith("fsdp-")])

    def test_of_ranks_without_a_name_need_torch_distributed(self) -> None:
        def try_it(send: Any) -> None:
            del os.environ["ZINF_JOB"]
            module = zinf.fully_shard(models.model())
            try:
                models.adamw(module)
            except zinf.InvalidArgument as error:
                send(str(error))

        process = models.Process(house.rank_environment(0, 2, "x"), try_it)
        text = "".join(process.values())
        self.assertEqual(process.finish(), 0)
        self.assertIn("init_process_group", text)


def train_scratch(send: Any) -> None:
    """Train two models of a script. Sends the job, and the losses of both."""
    del os.environ["ZINF_JOB"]
    losses = []
    for _ in range(2):
        module = zinf.fully_shard(models.model())
        losses.append(models.train(module, models.adamw(module), steps=2))
    send(zinf.engine_of(module).session.job)
    send(losses[0])
    send(losses[1])
    scratch._end()  # what the interpreter does at its end


class Refusals(unittest.TestCase):
    def test_of_graphs_that_outlive_a_step(self) -> None:
        class Wrapped(nn.Module):
            """All of it is recomputed in backward."""

            def __init__(self, reentrant: bool) -> None:
                super().__init__()
                self.blocks = nn.ModuleList([models.Transformer(count=1)])
                self.reentrant = reentrant

            def forward(self, x: torch.Tensor) -> Any:
                return torch.utils.checkpoint.checkpoint(
                    self.blocks[0],
                    x,
                    torch.ones(1, requires_grad=True),
                    use_reentrant=self.reentrant,
                )

        class Inner(models.Transformer):
            def forward(self, ids: torch.Tensor, one: Any = None) -> torch.Tensor:
                return super().forward(ids)

        for reentrant in (False, True):
            torch.manual_seed(1)
            module = Wrapped(reentrant)
            module.blocks[0] = Inner(count=1)
            with self.subTest(reentrant=reentrant), sharded(module):
                optimizer = models.adamw(module)
                loss, kept = (models.loss_of(module, models.batch(n)) for n in (0, 1))
                loss.backward()
                optimizer.step()
                with self.assertRaisesRegex(zinf.ZinfError, "graph of an earlier step"):
                    kept.backward()
                optimizer.zero_grad()
                models.loss_of(module, models.batch(1)).backward()
                optimizer.step()

    def test_of_a_forward_before_the_optimizer(self) -> None:
        with sharded(models.model()) as module:
            loss = models.loss_of(module, models.batch(0))
            kept = models.loss_of(module, models.batch(0))
            with self.assertRaisesRegex(zinf.ZinfError, "make the optimizer from"):
                loss.backward()
            models.adamw(module)
            with self.assertRaisesRegex(zinf.ZinfError, "make the optimizer from"):
                kept.backward()

    def test_of_optimizers(self) -> None:
        class Own(torch.optim.SGD):
            pass

        with sharded(models.model()) as module:
            former = type(module.embed.weight)
            other = nn.Parameter(torch.ones(2))
            for text, kind, parameters in (
                ("RMSprop over parameters", torch.optim.RMSprop, module.parameters()),
                ("Own over parameters", Own, module.parameters()),
                (r"and 1 of none", torch.optim.SGD, [*module.parameters(), other]),
            ):
                with self.subTest(text), self.assertRaisesRegex(zinf.InvalidArgument, text):
                    kind(parameters, lr=0.1)
            with self.assertRaisesRegex(zinf.InvalidArgument, "amsgrad"):
                torch.optim.Adam(module.parameters(), amsgrad=True)
            self.assertIs(type(module.embed.weight), former)
            torch.optim.RMSprop([other])  # of others: as ever
            models.adamw(module)
            # torch < 2.0 has no hook of step(): there zinf.optim itself refuses both.
            with self.assertRaisesRegex(zinf.ZinfError, "an optimizer already|lie in zinf"):
                models.adamw(module)
            with self.assertRaisesRegex(zinf.ZinfError, "RMSprop (over|steps over) parameters"):
                torch.optim.RMSprop(module.parameters())
        early = models.model()
        optimizer = models.adamw(early)
        with sharded(early):
            with self.assertRaisesRegex(zinf.ZinfError, "make the optimizer from"):
                models.loss_of(early, models.batch(0)).backward()
            optimizer.step()  # without gradients torch does nothing
        blocks = models.model()
        for block in blocks.blocks:
            zinf.fully_shard(block)
        with self.assertRaisesRegex(zinf.InvalidArgument, "whole model"):
            models.adamw(blocks)

    def test_of_arguments(self) -> None:
        module = models.model()
        for kind, text, options in (
            (zinf.Unsupported, "shard_placement_fn", {"shard_placement_fn": len}),
            (zinf.Unsupported, "ignored_params", {"ignored_params": {module.norm.weight}}),
            (zinf.Unsupported, "dp_mesh_dims", {"dp_mesh_dims": 1}),
            (zinf.Unsupported, "reshard_after_forward is 2", {"reshard_after_forward": 2}),
            (zinf.InvalidArgument, "mp_policy is a dict", {"mp_policy": {}}),
            (zinf.InvalidArgument, "offload_policy is a str", {"offload_policy": "cpu"}),
            (
                zinf.InvalidArgument,
                "reduce_dtype.*float64",
                {"mp_policy": zinf.MixedPrecisionPolicy(reduce_dtype=torch.float64)},
            ),
        ):
            with self.subTest(text), self.assertRaisesRegex(kind, text):
                zinf.fully_shard(module, **options)
        with self.assertRaises(ValueError):
            zinf.fully_shard(module.blocks)
        with self.assertRaisesRegex(zinf.InvalidArgument, "Tensor"):
            zinf.fully_shard(torch.ones(1))
        zinf.fully_shard(module)
        with self.assertRaisesRegex(zinf.InvalidArgument, "twice"):
            zinf.fully_shard(module)

    def test_of_meshes(self) -> None:
        def mesh(kind: str, *sizes: int) -> Any:
            def size(dim: int | None = None) -> int:
                return math.prod(sizes) if dim is None else sizes[dim]

            return types.SimpleNamespace(device_type=kind, ndim=len(sizes), size=size)

        for text, made, world in (
            ("of xpu", mesh("xpu", 1), 1),
            ("2 ranks, the job 4", mesh("cpu", 2), 4),
            ("3 dimensions", mesh("cpu", 2, 2, 1), 4),
        ):
            with (
                self.subTest(text),
                mock.patch("torch.distributed.is_initialized", return_value=True),
                mock.patch("torch.distributed.get_world_size", return_value=world),
                self.assertRaisesRegex(zinf.InvalidArgument, text),
            ):
                zinf.fully_shard(models.model(), mesh=made)
        with (
            mock.patch("torch.distributed.is_initialized", return_value=True),
            mock.patch("torch.distributed.get_world_size", return_value=4),
        ):
            module = zinf.fully_shard(models.model(), mesh=mesh("cpu", 2, 2))
            other = zinf.fully_shard(models.model(), mesh=mesh("cuda", 4))
            with self.assertRaisesRegex(zinf.InvalidArgument, "mesh is of cuda.*'cpu': name one"):
                zinf.fully_shard(models.model(), mesh=mesh("cuda", 4), device="cpu")
        self.assertEqual(shard.shard_of(other).settings, {"device": "cuda"})
        self.assertEqual(shard.shard_of(module).settings, {"device": "cpu", "shard_size": 2})

    def test_of_calls_that_contradict(self) -> None:
        half = zinf.MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        for text, first, second in (
            ("different mp_policy", {"mp_policy": half}, {}),
            (
                "offload_param='cpu'.*'nvme'",
                {"offload_policy": zinf.CPUOffloadPolicy()},
                {"offload_policy": zinf.NVMeOffloadPolicy()},
            ),
            ("no setting 'straetgy'.*strategy", {"straetgy": "zero2"}, {}),
            ("two configurations", {"config": {"timeout": 3}}, {"config": {"timeout": 4}}),
        ):
            module = models.model()
            zinf.fully_shard(module, **first)
            zinf.fully_shard(module.blocks[0], **second)
            with self.subTest(text), self.assertRaisesRegex(zinf.InvalidArgument, text):
                models.adamw(module)

    def test_of_methods(self) -> None:
        module = zinf.fully_shard(models.model())
        for name, arguments in (
            ("set_gradient_divide_factor", (2.0,)),
            ("set_reduce_scatter_divide_factor", (2.0,)),
            ("set_all_reduce_hook", (print,)),
            ("set_custom_all_gather", (None,)),
            ("set_custom_reduce_scatter", (None,)),
            ("set_requires_all_reduce", (False,)),
            ("set_reshard_after_forward", (4,)),
        ):
            with self.subTest(name), self.assertRaises(zinf.Unsupported):
                getattr(module, name)(*arguments)
        module.set_requires_all_reduce(True)
        module.set_unshard_in_backward(False)
        module.set_post_optim_event(None)
        zinf_fsdp.register_fsdp_forward_method(module, "forward")
        with self.assertRaises(ValueError):
            zinf_fsdp.register_fsdp_forward_method(module, "backward")
        with sharded(models.model()) as moved:
            models.adamw(moved)
            with self.assertRaisesRegex(zinf.InvalidArgument, "already"):
                zinf.fully_shard(moved.norm)


if __name__ == "__main__":
    unittest.main()
