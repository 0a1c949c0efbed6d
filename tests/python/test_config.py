# SPDX-License-Identifier: Apache-2.0
"""Settings of a session.

Goal: they come from their sources in the documented order, and a wrong one is refused with its
name. Method: Config.load() with arguments, dicts, files and variables; no daemon.
"""

from __future__ import annotations

import json
import os
import unittest
import warnings
from typing import Any

import house
import zinf
from zinf import deepspeed
from zinf.config import parse_bytes, variable
from zinf.libzinf import load
from zinf.libzinf.structures import Dtype, Offload, Optimizer, ScalerKind, Strategy

DEEPSPEED: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "nvme"},
        "offload_param": {"device": "nvme", "max_in_cpu": 1000000},
    },
    "optimizer": {"type": "SGD", "params": {"lr": 0.5, "momentum": 0.25}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.125}},
    "gradient_clipping": 0.75,
}


def load_config(source: Any = None, environ: Any = None, **settings: Any) -> zinf.Config:
    return zinf.Config.load(source, environ=environ or {}, **settings)


class Sources(unittest.TestCase):
    def test_defaults_are_those_of_libzinf(self) -> None:
        options = load_config().options(load())
        self.assertEqual(options.strategy, Strategy.DDP)
        self.assertEqual((options.rank, options.world_size), (-1, -1))
        self.assertEqual((options.param_dtype, options.grad_dtype), (Dtype.F32, Dtype.F32))
        self.assertEqual(options.offload_optimizer, Offload.NONE)
        self.assertEqual(options.optimizer, Optimizer.ADAMW)
        self.assertEqual((options.accumulation, options.reduce_dtype), (1, 0))
        self.assertIsNone(options.job)
        self.assertFalse(options.scaler)

    def test_argument_overrides_deepspeed_overrides_variable(self) -> None:
        environ = {"ZINF_STRATEGY": "zero1", "ZINF_DURABILITY": "power", "ZINF_OPTIMIZER": "lion"}
        self.assertEqual(load_config(environ=environ).strategy, "zero1")
        config = load_config(DEEPSPEED, environ, optimizer="adagrad")
        self.assertEqual(config.strategy, "zero3")  # The file overrides the variable,
        self.assertEqual(config.durability, "power")  # which stands where the file is silent,
        self.assertEqual(config.optimizer, "adagrad")  # and an argument overrides both.

    def test_argument_of_none_is_not_given(self) -> None:
        self.assertEqual(
            load_config(environ={"ZINF_STRATEGY": "zero2"}, strategy=None).strategy, "zero2"
        )

    def test_config_as_source_is_complete(self) -> None:
        base = zinf.Config(strategy="zero2")
        config = load_config(base, {"ZINF_STRATEGY": "zero1", "ZINF_DURABILITY": "power"}, job="a")
        self.assertEqual(
            (config.strategy, config.durability, config.job), ("zero2", "process", "a")
        )
        self.assertIsNone(base.job)

    def test_dict_of_settings(self) -> None:
        self.assertEqual(load_config({"strategy": "zero1", "job": "a"}, job="b").job, "b")

    def test_deepspeed_file_named_by_a_variable(self) -> None:
        path = os.path.join(house.folder("config"), "ds.json")
        with open(path, "w") as file:
            json.dump(DEEPSPEED, file)
        config = load_config(environ={"ZINF_DEEPSPEED_CONFIG": path})
        self.assertEqual(config.gradient_accumulation_steps, 4)

    def test_variables_of_socket_and_private_directory(self) -> None:
        config = load_config(environ={"ZINF_SOCKET": "/s", "ZINF_PRIVATE": "/p"})
        self.assertEqual((config.socket_path, config.private_dir), ("/s", "/p"))
        self.assertEqual(
            variable("gradient_accumulation_steps"), "ZINF_GRADIENT_ACCUMULATION_STEPS"
        )

    def test_private_daemon_means_nvme(self) -> None:
        self.assertEqual(zinf.Config(private_dir="/p").offload("offload_param"), Offload.NVME)
        config = zinf.Config(private_dir="/p", offload_param="none")
        self.assertEqual(config.offload("offload_param"), Offload.NONE)


class Values(unittest.TestCase):
    def refused(self, words: str, **settings: Any) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, words):
            load_config(**settings)

    def test_bytes(self) -> None:
        for text, count in (("512M", 512 << 20), ("1.5G", 3 << 29), ("64 KiB", 65536), (7, 7)):
            self.assertEqual(parse_bytes(text), count)
        self.refused("param_budget_bytes is '12Q'", param_budget_bytes="12Q")
        self.refused("staging_bytes is -1", staging_bytes=-1)

    def test_unknown_names_have_the_nearest(self) -> None:
        self.refused("no setting 'stratgy'; the nearest is 'strategy'", stratgy="zero3")
        with self.assertRaisesRegex(zinf.InvalidArgument, "nearest is 'offload_param'"):
            load_config({"offload_params": "nvme"})
        with self.assertRaisesRegex(zinf.InvalidArgument, "nearest is 'job'"):
            zinf.Config().replace(jobs="a")

    def test_unknown_variable_is_a_warning(self) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            load_config(environ={"ZINF_STRATEGYY": "zero3", "ZINF_PORT": "1", "ZINF_OTHER": "1"})
        self.assertEqual(len(caught), 1)
        self.assertIn("ZINF_STRATEGYY; the nearest is ZINF_STRATEGY", str(caught[0].message))

    def test_wrong_values_are_refused_by_name(self) -> None:
        self.refused("offload_param is 'disk': one of none, cpu, nvme", offload_param="disk")
        self.refused("optimizer is 'rprop'", optimizer="rprop")
        self.refused("param_dtype is 'int8'", param_dtype="int8")
        self.refused("timeout is 'soon'", timeout="soon")
        self.refused("gradient_accumulation_steps is 0", gradient_accumulation_steps=0)
        self.refused("gradient_accumulation_steps is 1.5", gradient_accumulation_steps=1.5)
        self.refused("rank is 64", rank=64)
        self.refused("takeover is 'maybe'", takeover="maybe")
        self.refused("job is 7", job=7)
        self.refused("private_set has 'x'", private_set="x")
        self.refused("loss_scale is 'big'", loss_scale="big")
        self.refused("ZINF_COMMIT_INTERVAL is 'x'", environ={"ZINF_COMMIT_INTERVAL": "x"})

    def test_unknown_strategy_has_the_nearest(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "zero3"):
            zinf.Config(strategy="zero33").options(load())

    def test_names_of_fsdp_and_of_torch(self) -> None:
        config = zinf.Config(strategy="full_shard", param_dtype="torch.bfloat16", shard_size="node")
        options = config.options(load())
        self.assertEqual(options.strategy, Strategy.ZERO3)
        self.assertEqual(options.shard_size, 0xFFFFFFFF)
        self.assertEqual((options.param_dtype, options.grad_dtype), (Dtype.BF16, Dtype.BF16))
        self.assertEqual(zinf.Config(param_dtype="half").param_dtype, "float16")

    def test_timeout_in_seconds(self) -> None:
        self.assertEqual(zinf.Config(timeout=1.5).options(load()).timeout_ms, 1500)
        self.assertEqual(zinf.Config(timeout=0.0001).options(load()).timeout_ms, 1)

    def test_loss_scales(self) -> None:
        static = zinf.Config(loss_scale=1024).options(load()).scaler.contents
        self.assertEqual((static.kind, static.init), (ScalerKind.STATIC, 1024.0))
        dynamic = zinf.Config(loss_scale="dynamic").options(load()).scaler.contents
        self.assertEqual((dynamic.kind, dynamic.window), (ScalerKind.TORCH, 2000))
        own = zinf.Config(loss_scale={"init": 8, "backoff": 0.25, "window": 3})
        rules = own.options(load()).scaler.contents
        self.assertEqual((rules.kind, rules.init, rules.growth), (ScalerKind.TORCH, 8.0, 2.0))
        self.assertEqual((rules.backoff, rules.window), (0.25, 3))
        self.assertTrue(own.has_loss_scale)
        self.assertFalse(zinf.Config().has_loss_scale)
        self.refused("loss_scale has init='x'", loss_scale={"init": "x"})


class DeepSpeedFiles(unittest.TestCase):
    def test_settings_of_a_file(self) -> None:
        config = load_config(DEEPSPEED)
        options = config.options(load())
        self.assertEqual(options.strategy, Strategy.ZERO3)
        self.assertEqual(options.accumulation, 4)
        self.assertEqual((options.offload_optimizer, options.offload_param), (2, 2))
        self.assertEqual(options.param_budget_bytes, 2000000)
        self.assertEqual((options.param_dtype, options.optimizer), (Dtype.BF16, Optimizer.SGD))

    def test_what_a_file_says_beyond_settings(self) -> None:
        read = deepspeed.read(DEEPSPEED)
        self.assertEqual((read.train_batch, read.micro_batch), (8, 2))
        self.assertEqual((read.step.lr, read.step.beta1, read.step.max_norm), (0.5, 0.25, 0.75))
        assert read.lr is not None
        self.assertEqual((read.lr.kind, read.lr.max_lr), (13, 0.125))
        self.assertEqual(read.scaler.kind, ScalerKind.NONE)

    def test_text_of_json(self) -> None:
        self.assertEqual(deepspeed.read(json.dumps(DEEPSPEED)).accumulation_count, 4)

    def test_loss_scale_of_float16(self) -> None:
        options = load_config({"train_batch_size": 1, "fp16": {"enabled": True}}).options(load())
        self.assertEqual(options.scaler.contents.kind, ScalerKind.DEEPSPEED)
        self.assertEqual(options.param_dtype, Dtype.F16)

    def test_notes_have_reasons(self) -> None:
        notes = deepspeed.read({"train_batch_size": 1, "aio": {"block_size": 4096}}).notes
        self.assertIn("aio.block_size", [note.key for note in notes])
        self.assertTrue(all(note.reason for note in notes))

    def test_auto_takes_facts(self) -> None:
        source = {"train_micro_batch_size_per_gpu": "auto", "gradient_clipping": "auto"}
        read = deepspeed.read(source, {"micro_batch": 3, "max_norm": 0.5, "world_size": 2})
        self.assertEqual((read.train_batch, read.step.max_norm), (6, 0.5))
        with self.assertRaisesRegex(zinf.InvalidArgument, 'is "auto", and'):
            deepspeed.read(source)
        with self.assertRaisesRegex(zinf.InvalidArgument, "no field 'microbatch'"):
            deepspeed.read(source, {"microbatch": 3})

    def test_wrong_files_are_refused_with_reasons(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "zero_optimization"):
            deepspeed.read({"train_batch_size": 1, "zero_optimisation": {}})
        with self.assertRaises(zinf.ZinfError) as raised:
            deepspeed.read("/nonexistent/ds.json")
        self.assertIn("/nonexistent/ds.json", str(raised.exception))
        with self.assertRaisesRegex(zinf.Unsupported, "amsgrad"):
            params = {"lr": 1, "amsgrad": True}
            deepspeed.read({"train_batch_size": 1, "optimizer": {"type": "Adam", "params": params}})


if __name__ == "__main__":
    unittest.main()
