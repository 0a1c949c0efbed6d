# SPDX-License-Identifier: Apache-2.0
"""The order of torch's streams and zinf's copies, on a fake GPU.

Goal: a kernel on a stream of torch runs after the copies that bring its inputs, and before the
copies that take its results away. Method: streams of the fake driver in the order "late", where a
stream advances only when the host waits for the stream; and a session that records the calls of
libzinf. Gradients come without autograd, so that a test chooses the stream of each gradient.
"""

from __future__ import annotations

import unittest
from typing import Any
from unittest import mock

try:
    import torch
except ImportError as error:
    raise unittest.SkipTest("torch is not installed") from error

import gpu_house
import torch_models as models
import zinf
from gpu_house import THREE, ZERO3, prepared, refused, run
from zinf.module import device as devices
from zinf.module import gradients
from zinf.module.parameter import NoDispatch

setUpModule, tearDownModule = gpu_house.start, gpu_house.stop


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


class HandOver:
    """A step whose gradients come on streams that the test chooses.

    is_prompt: kernels that write gradients end at once; else only when they are waited for.
    """

    def __init__(self, device: str, is_prompt: bool, **settings: Any) -> None:
        torch.manual_seed(1)
        blocks = torch.nn.Sequential(*(Branches() for _ in range(4)))
        model = torch.nn.Sequential(blocks, torch.nn.Linear(64, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        self.module, self.optimizer, self.engine = prepared(model, device, 3, optimizer, **settings)
        self.gradients = self.engine.gradients
        self.units = self.engine.units_backward()  # four blocks, and the rest
        self.cuda = self.engine.device if device == "cuda" else None
        self.is_prompt = is_prompt
        if self.cuda is not None:
            self.cuda.waits = False

    def put(self, buffer: torch.Tensor, gradient: torch.Tensor, is_first: bool) -> None:
        """Write a gradient into zinf's buffer, as a kernel on the current stream."""
        assert is_first
        if self.cuda is None:
            buffer.copy_(gradient)
        else:
            self.cuda.write(buffer, gradient, is_prompt=self.is_prompt)

    def use(self, stream: int) -> None:
        """Make a stream torch's current one."""
        if self.cuda is not None:
            self.cuda.current = self.cuda.streams[stream]

    @staticmethod
    def gradient_of(slot: Any) -> torch.Tensor:
        generator = torch.Generator().manual_seed(slot.index)
        return torch.randn(tuple(slot.shape), generator=generator)

    def arrive(self, unit: Any, *streams: int) -> None:
        """Let the gradients of a unit come, each on a stream; the last one of them repeats."""
        for number, slot in enumerate(unit.trained):
            self.use(streams[min(number, len(streams) - 1)])
            with NoDispatch():
                slot.parameter.grad = self.gradient_of(slot)
            self.gradients.arrived(slot)

    def end_round(self, stream: int) -> None:
        """End backward in a thread with this stream."""
        self.use(stream)
        self.gradients.end_round()

    def end(self) -> tuple[list[torch.Tensor], list[str]]:
        """End the step. Return the parameters, and what came on a wrong stream."""
        self.optimizer.step()
        if self.cuda is not None:
            self.cuda.waits = True
        values = models.values(self.module)
        wrong = [] if self.cuda is None else self.cuda.wrong_reads()
        self.engine.close(delete_job=True)
        return values, wrong


def hand_over(send: Any, device: str, case: str, is_prompt: bool) -> None:
    """The buffers of the first two blocks are those of the last two."""
    step = HandOver(device, is_prompt, strategy="ddp", find_unused_parameters=case == "flush")
    first, *others, rest = step.units
    with mock.patch.object(gradients, "_put", step.put):
        if case == "add":  # The gradients of a unit come on two streams.
            for unit in (first, *others):
                step.arrive(unit, 1, 1, 0)
        elif case == "hand":  # A unit that is used twice waits for the end of backward.
            first.call_count = 2
            step.arrive(first, 0)
            step.end_round(2)
            for unit in others:
                step.arrive(unit, 0)
        elif case == "join":  # The parts of a gradient are added up beside its buffer.
            second, third, fourth = others
            step.arrive(first, 0)
            step.arrive(second, 0)
            third.has_parts = True
            for slot in third.trained:
                slot.beside = step.gradient_of(slot)
            step.end_round(2)
            step.arrive(fourth, 0)
        else:  # The first unit gets no gradient.
            for unit in others:
                step.arrive(unit, 0)
        step.arrive(rest, 0)
        step.end_round(0)
        step.use(2)
        send(step.end())


class Order(unittest.TestCase):
    """Streams, of the fake driver and seen by a session that records its calls."""

    def test_of_branches_of_a_unit(self) -> None:
        for turns in range(2):
            with self.subTest(turns=turns):
                self.assertEqual(run(read_on_two_streams, turns, fake="order=late"), [[]])

    def test_of_gradients(self) -> None:
        """Each call of order() in gradients.py is needed for one of the cases."""
        for case in ("add", "hand", "join", "flush"):
            ((wanted, _),) = run(hand_over, "cpu", case, True)
            for is_prompt in (False, True):
                with self.subTest(case=case, is_prompt=is_prompt):
                    ((values, wrong),) = run(hand_over, "cuda", case, is_prompt, fake="order=late")
                    self.assertEqual(wrong, [])
                    self.assertTrue(models.is_same(values, wanted))

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


if __name__ == "__main__":
    unittest.main()
