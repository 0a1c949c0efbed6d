# SPDX-License-Identifier: Apache-2.0
"""Session: a whole training loop, and what is refused.

Goal: the calls do what libzinf's do, and a wrong call raises libzinf's sentence. Method: a real
zinfd, buffers of ctypes, ranks as processes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import sys
import threading
import unittest
from typing import Any
from unittest import mock

import house
import zinf

NVME = {"offload_optimizer": "nvme", "offload_param": "nvme"}
_COUNT = 6  # elements of the model


def values(address: int, count: int = _COUNT) -> Any:
    assert address, "there is no such buffer"
    return (ctypes.c_float * count).from_address(address)


def make_model(session: zinf.Session) -> None:
    """Two units: "a" with a.w (2, 2) and a.b (), "b" with b.w (1,)."""
    for unit, params in (("a", {"a.w": (2, 2), "a.b": ()}), ("b", {"b.w": (1,)})):
        session.add_unit(unit)
        for name, shape in params.items():
            session.add_param(name, shape)
    session.materialize()


def write_first(session: zinf.Session, blob: bytes = b"") -> None:
    counts = (4, 1, 1)
    for unit, params in ((0, (0, 1)), (1, (2,))):
        if session.rank == 0:
            session.write_begin(unit)
            for param in params:
                values(session.param_address(param), counts[param])[:] = [1.0] * counts[param]
        session.write_end(unit)
    session.commit(blob)


def one_step(session: zinf.Session, gradient: float, blob: bytes = b"") -> zinf.StepStats:
    return session.wait(begin_step(session, gradient, blob))


def begin_step(session: zinf.Session, gradient: float, blob: bytes = b"") -> int:
    """Take a step of SGD with lr 0.5, in which every element has the same gradient."""
    counts = (4, 1, 1)
    session.step_begin(zinf.StepOptions(lr=0.5, beta1=0, beta2=0, want_norm=True))
    for unit, params in ((1, (2,)), (0, (0, 1))):
        session.prefetch(unit)
        session.unshard(unit)
        session.grad_acquire(unit)
        for param in params:
            values(session.grad_address(param), counts[param])[:] = [gradient] * counts[param]
        session.reduce(unit)
        session.reshard(unit)
    return session.step(blob)


# ---- programs of ranks ----


def train_rank(steps: str) -> None:
    with zinf.Session(zinf.Config.load(optimizer="sgd", timeout=20)) as session:
        make_model(session)
        if session.committed_step < 0:
            write_first(session)
        for _ in range(int(steps)):
            stats = one_step(session, 1.0 + session.rank)  # Averages over 2 ranks: 1.5.
        session.unshard(1)
        print(session.rank, session.world_size, stats.step, values(session.param_address(2), 1)[0])
        session.reshard(1)
        session.barrier()


def different_rank() -> None:
    session = zinf.Session(zinf.Config.load(timeout=20))
    session.add_unit("a")
    session.add_param("a.w", (2, 2 + session.rank))
    try:
        session.materialize()
    except zinf.InvalidArgument as error:
        print(error)


def different_options_rank() -> None:
    session = zinf.Session(zinf.Config.load(optimizer="sgd", timeout=20))
    make_model(session)
    write_first(session)
    try:
        session.step_begin(zinf.StepOptions(lr=0.5 + session.rank, beta1=0, beta2=0))
        one_of = "began"
    except zinf.InvalidArgument as error:
        one_of = str(error)
    print(one_of)
    sys.stdin.read()  # Until the other rank has its answer.


def dying_rank() -> None:
    session = zinf.Session(zinf.Config.load(timeout=20))
    make_model(session)
    if session.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        session.barrier()
    except zinf.PeerLost as error:
        print(error)


# ---- tests ----


class Attaching(unittest.TestCase):
    def test_no_daemon(self) -> None:
        with self.assertRaisesRegex(zinf.DaemonNotFound, "no zinfd at /nonexistent/s: start it"):
            zinf.Session(zinf.Config(socket_path="/nonexistent/s"))

    def test_no_daemon_within_the_timeout(self) -> None:
        config = zinf.Config(socket_path="/nonexistent/s", wait_for_daemon=True, timeout=0.2)
        with self.assertRaises(zinf.DaemonNotFound):
            zinf.Session(config)

    def test_wrong_types_of_gradients(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "grad_dtype"):
            house.session(param_dtype="float32", grad_dtype="bfloat16")

    def test_rank_beyond_the_world(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "rank"):
            house.session(rank=2, world_size=2)

    def test_long_name_of_a_job(self) -> None:
        with self.assertRaisesRegex(zinf.InvalidArgument, "job"):
            house.session(job="j" * 64)

    def test_living_ranks_of_a_job(self) -> None:
        job = house.job_name()
        with (
            house.session(job=job),
            self.assertRaisesRegex(zinf.Busy, "takeover|incarnation"),
        ):
            house.session(job=job)

    def test_job_that_this_process_has_open(self) -> None:
        session = house.session(job="twice")
        with self.assertRaisesRegex(
            zinf.Busy, r"living ranks.*this process that has job 'twice' open.*engine_of\(model\)"
        ):
            house.session(job="twice")
        session.close()
        house.session(job="twice").destroy_job()
        self.assertEqual(zinf.session._open_jobs["twice"], 0)

    def test_more_jobs_than_a_user_may_have(self) -> None:
        with self.assertRaisesRegex(
            zinf.NoSpace,
            r"uid \d+ has 32 jobs of at most 32: delete one \(zctl jobs, zctl delete JOB",
        ):
            for _ in range(40):
                self.addCleanup(house.session().destroy_job)

    def test_restarted_rank_waits_for_the_end_of_the_former_one(self) -> None:
        job = house.job_name()
        former = house.session(job=job)
        timer = threading.Timer(0.2, former.close)
        with mock.patch.dict(os.environ, {"TORCHELASTIC_RESTART_COUNT": "1"}):
            timer.start()
            house.session(job=job).close()
        timer.join()

    def test_param_on_nvme_needs_state_there(self) -> None:
        with self.assertRaises(zinf.InvalidArgument):
            house.session(offload_param="nvme", offload_optimizer="none")


class Describing(unittest.TestCase):
    def setUp(self) -> None:
        self.session = house.session()
        self.addCleanup(self.session.close)

    def test_long_name(self) -> None:
        self.session.add_unit("a" * 95)
        with self.assertRaisesRegex(zinf.InvalidArgument, "95|96|name"):
            self.session.add_unit("b" * 96)

    def test_empty_parameter(self) -> None:
        self.session.add_unit("a")
        with self.assertRaisesRegex(zinf.InvalidArgument, "a.w"):
            self.session.add_param("a.w", (2, 0))
        with self.assertRaisesRegex(zinf.InvalidArgument, "a.w"):
            self.session.add_param("a.w", (2, -1))

    def test_parameter_without_a_unit(self) -> None:
        with self.assertRaises(zinf.InvalidArgument):
            self.session.add_param("w", (2,))

    def test_unknown_snapshot(self) -> None:
        with self.assertRaisesRegex(zinf.ZinfError, "nobody/x") as raised:
            self.session.load("nobody/x")
        self.assertEqual(raised.exception.errno, errno.ENOENT)

    def test_addresses_of_nothing(self) -> None:
        make_model(self.session)
        self.assertEqual(self.session.param_address(9), 0)
        self.assertEqual(self.session.grad_address(9), 0)


class Training(unittest.TestCase):
    def test_loop_and_resume(self) -> None:
        job = house.job_name()
        with house.session(job=job, offload_optimizer="nvme") as session:
            make_model(session)
            self.assertEqual((session.committed_step, session.update_count), (-1, 0))
            write_first(session, b"first\0blob")
            self.assertEqual((session.committed_step, session.blob()), (0, b"first\0blob"))
            stats = one_step(session, 0.5, b"one")
            self.assertEqual((stats.step, stats.is_skipped), (1, 0))
            self.assertAlmostEqual(stats.norm, (6 * 0.25) ** 0.5, places=6)
            self.assertEqual(session.loss_scale(), 1.0)
            session.unshard(0)
            self.assertEqual(list(values(session.param_address(0), 4)), [0.75] * 4)
            session.reshard(0)
            self.assertEqual(session.snapshot("one"), 1)
            session.ping()
        with house.session(job=job, offload_optimizer="nvme") as session:
            make_model(session)
            self.assertEqual((session.committed_step, session.blob()), (1, b"one"))
            self.assertEqual((session.lost_step, session.update_count), (-1, 1))
            self.assertEqual(one_step(session, 0.5).step, 2)
            session.destroy_job()
        with house.session(offload_optimizer="nvme") as session:
            session.load(f"{job}/one")
            make_model(session)
            self.assertEqual(session.committed_step, 1)
            session.destroy_job()

    def test_memory_of_written_values_ends_with_the_first_step(self) -> None:
        def copies() -> int:
            """Return the KiB of memory of written units, of all processes that map it."""
            with open(f"/proc/{house.daemon_pid()}/smaps") as file:
                lines = file.read().splitlines()
            places = [number for number, line in enumerate(lines) if "memfd:zinf-write" in line]
            sizes = [next(x for x in lines[place:] if x.startswith("Rss:")) for place in places]
            return sum(int(size.split()[1]) for size in sizes)

        with house.session(offload_optimizer="nvme") as session:
            make_model(session)
            write_first(session, b"")
            self.assertGreater(copies(), 0)
            one_step(session, 0.5)
            self.assertEqual(copies(), 0)
            session.write_begin(0)  # The same memory again.
            self.assertGreater(copies(), 0)
            found = list(values(session.param_address(0), 4))
            session.write_end(0, 0)
            session.commit()
            self.assertEqual(one_step(session, 0.5).step, session.committed_step)
            self.assertEqual(found, [0.75] * 4)
            session.destroy_job()

    def test_two_ranks(self) -> None:
        outputs = house.run_ranks(2, "test_session.train_rank", "2")
        self.assertEqual(
            [text.split() for text in outputs],
            [
                ["0", "2", "2", "-0.5"],
                ["1", "2", "2", "-0.5"],
            ],
        )

    def test_frozen_parameter_stays(self) -> None:
        with house.session() as session:
            session.add_unit("a")
            session.add_param("a.w", (1,))
            session.freeze(session.add_param("a.frozen", (1,)))
            session.materialize()
            session.write_begin(0)
            values(session.param_address(0), 1)[0] = 1.0
            values(session.param_address(1), 1)[0] = 2.0
            session.write_end(0)
            session.commit()
            session.step_begin(zinf.StepOptions(lr=0.5, beta1=0, beta2=0))
            session.grad_acquire(0)
            values(session.grad_address(0), 1)[0] = 1.0
            session.reduce(0)
            ticket = session.step()
            session.wait(ticket)
            self.assertTrue(session.committed_step == 1)
            session.unshard(0)
            self.assertEqual(values(session.param_address(0), 1)[0], 0.5)
            self.assertEqual(values(session.param_address(1), 1)[0], 2.0)

    def test_groups_have_their_own_rates(self) -> None:
        with house.session(group_count=2) as session:
            make_unit = session.add_unit("a")
            for name, group in (("a.x", 0), ("a.y", 1)):
                session.set_param_group(session.add_param(name, (1,)), group)
            session.materialize()
            session.write_begin(make_unit)
            session.write_end(make_unit)  # Zeros.
            session.commit()
            options = zinf.StepOptions(lr=9, beta1=0, beta2=0)
            options.set_groups([(0.5, 0.0), (0.25, 0.0)])
            session.step_begin(options)
            session.grad_acquire(0)
            for param in (0, 1):
                values(session.grad_address(param), 1)[0] = 1.0
            session.reduce(0)
            session.wait(session.step())
            session.unshard(0)
            self.assertEqual(values(session.param_address(0), 1)[0], -0.5)
            self.assertEqual(values(session.param_address(1), 1)[0], -0.25)

    def test_missing_gradient(self) -> None:
        with house.session() as session:
            make_model(session)
            write_first(session)
            session.step_begin()
            with self.assertRaisesRegex(zinf.MissingGradient, "units: a, b"):
                session.step()

    def test_tickets(self) -> None:
        with house.session() as session:
            make_model(session)
            write_first(session)
            with self.assertRaises(zinf.InvalidArgument):
                session.wait(12345)
            session.step_begin(zinf.StepOptions(lr=0.5, beta1=0, beta2=0))
            for unit in (0, 1):
                session.grad_acquire(unit)
                session.reduce(unit)
            ticket = session.step()
            self.assertEqual(session.wait(ticket, timeout=10).step, 1)
            with self.assertRaises(zinf.InvalidArgument):
                session.test(ticket)

    def test_hyperparameters_at_the_end_of_a_step(self) -> None:
        with house.session() as session:
            if not session._library.has("zinf_step_with"):
                self.skipTest("this libzinf has no zinf_step_with()")
            make_model(session)
            write_first(session)
            session.step_begin(zinf.StepOptions(is_deferred=True))
            for unit, params in ((1, ((2, 1),)), (0, ((0, 4), (1, 1)))):
                session.grad_acquire(unit)
                for param, count in params:
                    values(session.grad_address(param), count)[:] = [2.0] * count
                session.reduce(unit)
            self.assertAlmostEqual(session.grad_norm(), 24**0.5, places=6)
            ticket = session.step_with(zinf.StepOptions(lr=0.25, beta1=0, beta2=0), b"blob")
            self.assertEqual(session.wait(ticket).step, 1)
            self.assertEqual(session.blob(), b"blob")
            session.unshard(1)
            self.assertEqual(values(session.param_address(2), 1)[0], 0.5)
            session.reshard(1)
            session.step_begin(zinf.StepOptions(is_deferred=True))
            session.grad_acquire(0)
            session.step_discard()
            self.assertEqual(session.committed_step, 1)
            self.assertEqual(one_step(session, 1.0).step, 2)

    def test_groups_have_their_own_betas(self) -> None:
        with house.session(group_count=2, optimizer="lion") as session:
            if not session._library.has("zinf_step_with"):
                self.skipTest("this libzinf has no zinf_step_with()")
            session.add_unit("a")
            for name, group in (("a.x", 0), ("a.y", 1)):
                session.set_param_group(session.add_param(name, (1,)), group)
            session.materialize()
            session.write_begin(0)
            session.write_end(0)
            session.commit()
            # beta1 0.5: the update has the sign of gradient + moment; 1: only that of the moment.
            for gradient in (1.0, -0.5):
                session.step_begin(zinf.StepOptions(is_deferred=True))
                session.grad_acquire(0)
                for param in (0, 1):
                    values(session.grad_address(param), 1)[0] = gradient
                session.reduce(0)
                options = zinf.StepOptions()
                options.set_groups([(1.0, 0.0), (1.0, 0.0)], [(0.1, 0.5, 0), (0.9, 0.5, 0)])
                session.wait(session.step_with(options))
            session.unshard(0)
            # Moment 0.5 after the first step: 0.1 * 0.5 - 0.9 * 0.5 < 0 < 0.9 * 0.5 - 0.1 * 0.5.
            self.assertEqual(values(session.param_address(0), 1)[0], 0.0)
            self.assertEqual(values(session.param_address(1), 1)[0], -2.0)
            with self.assertRaises(ValueError):
                options.set_groups([(1.0, 0.0)], [])

    def test_without_the_calls_of_a_later_library(self) -> None:
        with house.session() as session:
            session._library = _Older(session._library)  # type: ignore[assignment]
            make_model(session)
            with self.assertRaisesRegex(zinf.Unsupported, r"has no zinf_grad_norm\(\)"):
                session.grad_norm()


class _Older:
    """A library without the optional functions."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def has(self, name: str) -> bool:
        return name not in ("zinf_grad_norm", "zinf_step_with") and bool(self._library.has(name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


class Ranks(unittest.TestCase):
    def test_models_that_differ(self) -> None:
        for text in house.run_ranks(2, "test_session.different_rank"):
            self.assertRegex(text, r"a\.w")
            self.assertRegex(text, r"rank \d")

    def test_options_of_a_step_that_differ(self) -> None:
        for text in house.run_ranks(2, "test_session.different_options_rank"):
            self.assertRegex(text, r"lr|began")

    def test_a_rank_that_dies(self) -> None:
        processes = house.start_ranks(2, "test_session.dying_rank")
        outputs = [house.finish(process) for process in processes]
        self.assertEqual(processes[1].returncode, -signal.SIGKILL)
        self.assertRegex(outputs[0], "rank 1")


class Ending(unittest.TestCase):
    def test_closed_session(self) -> None:
        session = house.session()
        session.close()
        session.close()
        self.assertTrue(session.is_closed)
        for call in (session.barrier, session.ping, lambda: session.add_unit("a")):
            with self.assertRaisesRegex(zinf.SessionClosed, session.job):
                call()
        with self.assertRaises(zinf.SessionClosed):
            _ = session.committed_step

    def test_destroyed_job(self) -> None:
        job = house.job_name()
        session = house.session(job=job)
        make_model(session)
        write_first(session)
        session.destroy_job()
        self.assertTrue(session.is_closed)
        with house.session(job=job) as again:
            make_model(again)
            self.assertEqual(again.committed_step, -1)

    def test_job_is_destroyed_right_after_a_step(self) -> None:
        session = house.session(**NVME)
        make_model(session)
        write_first(session)
        begin_step(session, 1.0)
        session.destroy_job()
        self.assertTrue(session.is_closed)
        self.assertEqual(session._tickets, set())

    def test_tickets_are_kept_until_they_are_waited_for(self) -> None:
        session = house.session()
        make_model(session)
        write_first(session)
        ticket = begin_step(session, 1.0)
        self.assertEqual(session._tickets, {ticket})
        with (
            mock.patch.object(session, "_wait_call", side_effect=zinf.Timeout("slow")),
            self.assertRaises(zinf.Timeout),
        ):
            session.wait(ticket)
        self.assertEqual(session._tickets, {ticket})
        session.wait(ticket)
        self.assertEqual(session._tickets, set())
        with self.assertRaises(zinf.ZinfError):
            session.wait(ticket)
        session.close()

    def test_forked_child_is_refused_and_the_parent_goes_on(self) -> None:
        session = house.session()
        make_model(session)
        write_first(session)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                session.barrier()
            except zinf.ForkedChild as error:
                os.write(writer, str(error).encode())
            session.close()  # Does nothing.
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            text = pipe.read().decode()
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertIn(f"process {child} is a forked child", text)
        self.assertEqual(one_step(session, 1.0).step, 1)
        session.close()

    def test_forked_child_makes_its_own_session(self) -> None:
        session = house.session()
        config = house.config()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with zinf.Session(config) as own:
                    make_model(own)
                    own.barrier()
                    code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        session.ping()
        session.close()

    def test_calls_of_several_threads(self) -> None:
        session = house.session()
        make_model(session)
        write_first(session)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(50):
                    session.unshard(0)
                    session.ping()
                    session.reshard(0)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        session.close()


if __name__ == "__main__":
    unittest.main()
