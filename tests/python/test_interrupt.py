# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and other signals during calls that wait.

Goal: KeyboardInterrupt within half a second, and the same call may be made again; descriptors of
signal.set_wakeup_fd() of others stay in use. Method: ranks as processes, and a Watch with a
function of the test in place of zinf_interrupt().
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import sys
import threading
import time
import unittest
from typing import Any

import house
import zinf
from test_session import make_model, values, write_first
from zinf import interrupt
from zinf.libzinf import load

CALLS_AFTER = 10000

# ---- programs of ranks ----


def barrier_rank() -> None:
    session = zinf.Session(zinf.Config.load(timeout=30))
    make_model(session)
    print("attached", flush=True)
    if session.rank == 1:
        sys.stdin.readline()
    try:
        session.barrier()
        print("passed", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        session.barrier()
        print("passed again", flush=True)


def twice(call: Any) -> None:
    """Make a call that Ctrl-C ends, and make it again."""
    try:
        call()
        print("passed", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        call()


def materialize_rank() -> None:
    session = zinf.Session(zinf.Config.load(timeout=30))
    session.add_unit("a")
    session.add_param("a.w", (1,))
    print("attached", flush=True)
    if session.rank == 1:
        sys.stdin.readline()
    twice(session.materialize)
    session.barrier()


def step_rank() -> None:
    """Wait for a step that the other rank has not made yet."""
    session = zinf.Session(zinf.Config.load(timeout=30, optimizer="sgd"))
    make_model(session)
    write_first(session)
    session.step_begin()
    print("attached", flush=True)
    if session.rank == 1:
        sys.stdin.readline()
    for unit in (1, 0):
        session.grad_acquire(unit)
        session.reduce(unit)
    ticket = session.step()
    twice(lambda: session.wait(ticket))
    session.barrier()
    print(session.committed_step, flush=True)


def discard_rank() -> None:
    """Wait for the norm of a step, then discard the step instead."""
    session = zinf.Session(zinf.Config.load(timeout=30, optimizer="sgd"))
    make_model(session)
    write_first(session)
    session.step_begin(zinf.StepOptions(is_deferred=True))
    print("attached", flush=True)
    if session.rank == 0:
        hand_over(session, 3.0)
        try:
            session.grad_norm()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    else:
        sys.stdin.readline()
    session.step_discard()
    session.step_begin(zinf.StepOptions(is_deferred=True))
    hand_over(session, 1.0)
    print(round(session.grad_norm() ** 2, 3), flush=True)
    session.wait(session.step_with(zinf.StepOptions(lr=0.5, beta1=0, beta2=0)))


def hand_over(session: zinf.Session, gradient: float) -> None:
    for unit, params in ((1, ((2, 1),)), (0, ((0, 4), (1, 1)))):
        session.grad_acquire(unit)
        for param, count in params:
            values(session.grad_address(param), count)[:] = [gradient] * count
        session.reduce(unit)


def handled_rank() -> None:
    """Takes a signal whose handler returns: the call goes on."""
    session = zinf.Session(zinf.Config.load(timeout=30))
    make_model(session)
    signal.signal(signal.SIGUSR1, lambda *_: print("handled", flush=True))
    print("attached", flush=True)
    if session.rank == 1:
        sys.stdin.readline()
    session.barrier()
    print("passed", flush=True)


def thread_rank() -> None:
    """Waits in another thread, as torch's backward may, while the main thread waits for it in C."""
    session = zinf.Session(zinf.Config.load(timeout=30))
    make_model(session)
    print("attached", flush=True)
    if session.rank == 1:
        sys.stdin.readline()
        session.barrier()
        return
    done = os.pipe()

    def work() -> None:
        try:
            session.barrier()
        except zinf.Interrupted as error:
            print("ended:", error, flush=True)
        os.write(done[1], b"x")

    thread = threading.Thread(target=work)
    thread.start()
    byte = ctypes.create_string_buffer(1)
    read = ctypes.CDLL(None, use_errno=True).read
    try:
        while read(done[0], byte, 1) < 1:  # Handlers do not run before it returns.
            pass
        thread.join()
    except KeyboardInterrupt:
        thread.join()
        print("interrupted", flush=True)
    session.barrier()


def attaching_rank(path: str) -> None:
    print("attaching", flush=True)
    try:
        zinf.Session(zinf.Config(socket_path=path, timeout=60))
    except KeyboardInterrupt:
        print("interrupted", flush=True)


class Attaching(unittest.TestCase):
    def test_ctrl_c_ends_an_attach_to_a_daemon_that_does_not_answer(self) -> None:
        path = os.path.join(house.folder("mute"), "s")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen()
            process = house.start_program("test_interrupt.attaching_rank", path)
            self.addCleanup(house.kill, process)
            assert process.stdout is not None
            self.assertEqual(process.stdout.readline(), "attaching\n")
            connection, _ = listener.accept()  # It waits for the answer now.
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.stdout.readline(), "interrupted\n")
            self.assertLess(time.monotonic() - sent, house.patient(0.5))
            connection.close()


class Signals(unittest.TestCase):
    def setUp(self) -> None:
        if not load().has("zinf_interrupt"):
            self.skipTest("this libzinf has no zinf_interrupt()")

    def start(self, program: str, call: str = "barrier") -> None:
        self.ranks = house.start_ranks(2, f"test_interrupt.{program}")
        for rank in self.ranks:
            self.addCleanup(house.kill, rank)
            self.assertEqual(self.line(rank), "attached")
        house.wait_until_asked(self.ranks[0].pid, call)

    def line(self, process: Any) -> str:
        assert process.stdout is not None
        return str(process.stdout.readline()).strip()

    def end(self) -> list[str]:
        assert self.ranks[1].stdin is not None
        self.ranks[1].stdin.write("go\n")
        self.ranks[1].stdin.flush()
        outputs = [house.finish(rank) for rank in self.ranks]
        self.assertEqual([rank.returncode for rank in self.ranks], [0, 0], outputs)
        return outputs

    def test_ctrl_c_ends_a_wait_which_can_go_on(self) -> None:
        self.start("barrier_rank")
        sent = time.monotonic()
        self.ranks[0].send_signal(signal.SIGINT)
        self.assertEqual(self.line(self.ranks[0]), "interrupted")
        self.assertLess(time.monotonic() - sent, house.patient(0.5))
        outputs = self.end()
        self.assertEqual([text.split("\n")[0] for text in outputs], ["passed again", "passed"])

    def interrupt_and_end(self) -> list[str]:
        sent = time.monotonic()
        self.ranks[0].send_signal(signal.SIGINT)
        self.assertEqual(self.line(self.ranks[0]), "interrupted")
        self.assertLess(time.monotonic() - sent, house.patient(0.5))
        return self.end()

    def test_ctrl_c_while_ranks_are_missing(self) -> None:
        self.start("materialize_rank", "materialize")
        self.interrupt_and_end()

    def test_ctrl_c_while_a_step_is_awaited(self) -> None:
        self.start("step_rank", "step")
        outputs = self.interrupt_and_end()
        self.assertEqual([text.split()[-1] for text in outputs], ["1", "1"])

    def test_ctrl_c_while_a_norm_is_awaited_then_discard(self) -> None:
        self.start("discard_rank", "grad_norm")
        outputs = self.interrupt_and_end()
        self.assertEqual([text.split()[-1] for text in outputs], ["6.0", "6.0"])

    def test_handler_that_returns_lets_the_call_go_on(self) -> None:
        self.start("handled_rank")
        for _ in range(3):
            self.ranks[0].send_signal(signal.SIGUSR1)
            self.assertEqual(self.line(self.ranks[0]), "handled")
        self.assertEqual([text.strip() for text in self.end()], ["passed", "passed"])

    def test_ctrl_c_ends_a_wait_in_another_thread(self) -> None:
        self.start("thread_rank")
        sent = time.monotonic()
        self.ranks[0].send_signal(signal.SIGINT)
        self.assertIn("ended: Ctrl-C", self.line(self.ranks[0]))
        self.assertLess(time.monotonic() - sent, house.patient(0.5))
        self.assertEqual(self.line(self.ranks[0]), "interrupted")
        self.end()

    def test_ctrl_c_amid_many_calls_leaves_the_session_whole(self) -> None:
        session = house.session()
        self.addCleanup(session.close)
        make_model(session)
        write_first(session)
        for round_ in range(20):
            ready = threading.Event()
            sender = threading.Thread(target=send_when, args=(ready,))
            sender.start()
            with self.assertRaises(KeyboardInterrupt):
                for _ in range(round_):
                    session.ping()
                ready.set()
                while sender.is_alive():
                    session.ping()
                for _ in range(CALLS_AFTER):  # Python handles a signal between two of them.
                    session.ping()
            sender.join()
            session.ping()


def send_when(ready: threading.Event) -> None:
    """Send Ctrl-C to this process once ready is set."""
    ready.wait()
    os.kill(os.getpid(), signal.SIGINT)


class Watching(unittest.TestCase):
    """The watch alone, in this process."""

    def setUp(self) -> None:
        self.watch = interrupt.watch()
        self.handle = ctypes.c_void_p(4096)
        self.called = threading.Event()
        former = signal.signal(signal.SIGUSR1, lambda *_: None)
        self.addCleanup(signal.signal, signal.SIGUSR1, former)
        self.former = signal.set_wakeup_fd(-1)
        self.addCleanup(signal.set_wakeup_fd, self.former)

    def interrupt(self, handle: Any) -> None:
        if handle is self.handle:
            self.called.set()

    def test_signal_calls_the_function_until_removed(self) -> None:
        self.watch.add(self.interrupt, self.handle)
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertTrue(self.called.wait(5))
        self.watch.remove(self.handle)
        if not self.watch._targets:
            self.assertEqual(signal.set_wakeup_fd(-1), -1)

    def test_descriptor_of_another_gets_its_bytes_and_is_put_back(self) -> None:
        reader, writer = socket.socketpair()
        self.addCleanup(reader.close)
        self.addCleanup(writer.close)
        writer.setblocking(False)
        reader.settimeout(5)
        signal.set_wakeup_fd(writer.fileno())
        self.watch.add(self.interrupt, self.handle)
        former = self.watch.enter()
        self.assertEqual(former, writer.fileno())
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertTrue(self.called.wait(5))
        self.assertEqual(reader.recv(8), bytes([signal.SIGUSR1]))
        self.watch.leave(former)
        self.watch.remove(self.handle)
        self.assertEqual(signal.set_wakeup_fd(-1), writer.fileno())

    def test_closed_descriptor_of_another_gets_nothing(self) -> None:
        reader, writer = socket.socketpair()
        pipe = os.pipe()
        self.addCleanup(reader.close)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        self.watch.add(self.interrupt, self.handle)
        former = self.watch.enter()
        writer.close()
        os.dup2(pipe[1], former)  # Another file has the number now.
        self.addCleanup(os.close, former)
        os.close(pipe[1])
        self.addCleanup(os.close, pipe[0])
        os.set_blocking(pipe[0], False)
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertTrue(self.called.wait(5))
        self.watch.remove(self.handle)
        with self.assertRaises(BlockingIOError):
            os.read(pipe[0], 8)

    def test_asyncio_keeps_its_handlers(self) -> None:
        with house.session() as session:

            async def work() -> None:
                got = asyncio.Event()
                asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, got.set)
                session.ping()
                os.kill(os.getpid(), signal.SIGUSR1)
                await asyncio.wait_for(got.wait(), 5)

            asyncio.run(work())
            session.ping()

    def test_calls_of_other_threads_leave_the_descriptor_alone(self) -> None:
        with house.session() as session:
            thread = threading.Thread(target=session.ping)
            thread.start()
            thread.join()

    def test_forked_child_leaves_the_parents_descriptors(self) -> None:
        self.watch.add(self.interrupt, self.handle)
        child = os.fork()
        if child == 0:
            os._exit(0 if signal.set_wakeup_fd(-1) == -1 and interrupt._watch is None else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        os.kill(os.getpid(), signal.SIGUSR1)
        self.assertTrue(self.called.wait(5))
        self.watch.remove(self.handle)


if __name__ == "__main__":
    unittest.main()
