# SPDX-License-Identifier: Apache-2.0
"""How a GPU is chosen, and what it is asked for, without a driver.

Goal: settings, the model, a framework and the launcher name the device, or the call is refused.
Method: torch's and libzinf's functions are replaced and recorded.
"""

from __future__ import annotations

import os
import unittest
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import zinf
from zinf.module import device as devices


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


if __name__ == "__main__":
    unittest.main()
