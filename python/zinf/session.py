# SPDX-License-Identifier: Apache-2.0
"""Session: the connection of one rank to its job."""

from __future__ import annotations

import ctypes as c
import enum
import errno
import os
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Callable

from . import interrupt
from .config import Config
from .errors import (
    Busy,
    DaemonNotFound,
    ForkedChild,
    GpuFailed,
    Interrupted,
    InvalidArgument,
    NoSpace,
    SessionClosed,
    Timeout,
    Unsupported,
    ZinfError,
    error_for,
)
from .libzinf import load
from .libzinf.structures import (
    GROUP_FROZEN,
    GpuOptions,
    GpuStats,
    Options,
    SnapshotOptions,
    StepOptions,
    StepStats,
)
from .waits import Waits

__all__ = ["Session", "StateKind", "StepOptions", "StepStats"]

_SLICE_MS = 200  # of a wait, without zinf_interrupt()
_RETRY_S = 0.05  # between two looks for a daemon
_END_S = 10.0  # for the ranks of a former start to be seen as ended
_NO_GPU = (errno.ENODEV, errno.ENOTSUP)  # of zinf_gpu_open(), and that is none for zinf
_ON_CPU = ", or compute on the CPU with device='cpu' (ZINF_DEVICE=cpu)"
_GPU_BUDGET = re.compile(r"zinf_gpu_open|GPU memory|\b(GPU|MIG)-")  # those of GPUs have these words
_NO_STREAM = -1  # no CUstream has this value
_CUDA_CODE = re.compile(r"\bCUDA(_ERROR_\w+ \(\d+\)| error \d+)")  # in libzinf's sentences


class StateKind(enum.IntEnum):
    """What an optimizer keeps of each element of a parameter, as float32."""

    MASTER = 1  # every optimizer: the value of the parameter in float32
    EXP_AVG = 2  # Adam, AdamW, Lion
    EXP_AVG_SQ = 3  # Adam, AdamW
    MOMENTUM = 4  # SGD
    SUM = 5  # Adagrad: the sum of squares


class Session:
    """One rank's connection to its job: the calls of libzinf, with exceptions.

    Attaches when it is made. A failed call raises a ZinfError with libzinf's sentence. Ctrl-C ends
    a waiting call with KeyboardInterrupt; the same call may be made again and goes on.

    Threads: any. Calls of several threads run one after the other. While one waits, others wait
    for it. Forks: a child cannot use the session of its parent (ForkedChild); the parent keeps it.
    Memory: addresses are valid until close(). Close a session after its last tensor.
    """

    rank: int
    world_size: int
    job: str

    def __init__(self, config: Config | None = None) -> None:
        self._handle: c.c_void_p | None = None
        self._is_forked = False
        self._lock = threading.RLock()
        self._library = load()
        self.waits = Waits()
        config = Config.load() if config is None else config
        if config.private_dir is not None:
            from . import private  # noqa: PLC0415 - few scripts need it

            daemon = private.ensure(config, self._library)
            config = config.replace(socket_path=daemon.socket_path)
        self.config = config
        self._tickets: set[int] = set()  # of steps, not yet waited for
        self.on_close: list[Callable[[], None]] = []  # called when it ends: its memory goes
        self._watch: interrupt.Watch | None = None
        self._gpu_stream: int | None = None  # that libzinf knows; None: no GPU
        self._handle = self._attach(config)
        try:
            self._begin(config)
        except BaseException:  # Ctrl-C too: nothing stays attached.
            self.close()
            raise

    def _begin(self, config: Config) -> None:
        self.rank = self._library.zinf_rank(self._handle)
        self.world_size = self._library.zinf_world_size(self._handle)
        self.job = config.job_name()
        _open_jobs[self.job] += 1
        if self._library.has("zinf_interrupt"):
            self._watch = interrupt.watch()
            self._watch.add(self._library.zinf_interrupt, self._handle)
        _sessions.add(self)

    def _attach(self, config: Config) -> c.c_void_p:
        options = config.options(self._library)
        began = time.monotonic()
        deadline = began + (config.timeout or 600.0)
        # A launcher starts ranks again when it has seen the old ones end: the daemon sees it later.
        restarts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
        handle = c.c_void_p()
        while True:
            result, text = self._try_attach(options, handle)
            if result == 0:
                return handle
            error = error_for(result, text, is_attach=True)
            if isinstance(error, Busy) and _open_jobs[config.job_name()] and not restarts:
                raise Busy(
                    f"{error}. It is this process that has job '{config.job_name()}' open: call "
                    "zinf.engine_of(model).close(), or close() of the session, before it begins "
                    "the job again"
                )
            # libzinf itself can wait for a daemon, but Ctrl-C would not end that.
            is_waiting = config.wait_for_daemon and isinstance(error, DaemonNotFound)
            is_ending = restarts and isinstance(error, Busy) and time.monotonic() < began + _END_S
            if not is_ending and (not is_waiting or time.monotonic() >= deadline):
                if isinstance(error, DaemonNotFound) and config.private_dir is None:
                    hint = "private_dir= or ZINF_PRIVATE=DIR starts a private one for this script"
                    raise DaemonNotFound(f"{error}. {hint}", error.errno)
                raise error
            time.sleep(_RETRY_S)

    def _try_attach(self, options: Options, handle: c.c_void_p) -> tuple[int, str]:
        """Call zinf_attach() in a thread of its own, as Ctrl-C cannot end the call itself.

        Return its result and its text. After Ctrl-C the thread detaches what it attached.
        """
        library = self._library
        outcome: list[tuple[int, str]] = []
        is_wanted = [True]
        lock = threading.Lock()  # guards outcome and is_wanted

        def work() -> None:
            result = library.zinf_attach(c.byref(options), c.byref(handle))
            text = library.zinf_attach_error().decode() if result else ""  # Of this thread.
            with lock:
                outcome.append((result, text))
                is_left = not is_wanted[0]
            if is_left and result == 0:
                library.zinf_detach(handle)

        thread = threading.Thread(target=work, name="zinf-attach", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:
            with lock:
                is_wanted[0] = False
                is_attached = bool(outcome) and outcome[0][0] == 0
            if is_attached:
                library.zinf_detach(handle)
            raise
        return outcome[0]

    # ---- calling ----

    def _use(self) -> c.c_void_p:
        """Return the handle, if this process may use it."""
        if self._is_forked:
            raise ForkedChild(
                f"process {os.getpid()} is a forked child: it cannot use its parent's session of "
                f"job '{self.job}'. Make a Session in the child, or leave zinf to the parent"
            )
        if self._handle is None:
            raise SessionClosed(f"the session of job '{self.job}' was closed")
        return self._handle

    def _error(self, result: int) -> Exception:
        text = self._library.zinf_error_text(self._handle).decode()
        if self._gpu_stream is not None:
            if _CUDA_CODE.search(text):
                return GpuFailed(text, -result)
            if "budget" in text and _GPU_BUDGET.search(text):
                text += ". The settings are gpu_param_budget_bytes and gpu_grad_budget_bytes"
        error = error_for(result, text)
        if isinstance(error, NoSpace) and self.config.private_dir is not None:
            from . import private  # noqa: PLC0415 - few scripts need it

            return error_for(result, text + private.hint_for(self.config, text))
        return error

    def _call(self, function: Any, *arguments: Any) -> None:
        """Make a call that does not wait for other ranks."""
        self._use()
        with self._lock:
            handle = self._use()
            result = function(handle, *arguments)
            while result == -errno.EINTR:  # Handlers of signals run here.
                result = function(handle, *arguments)
            if result:
                raise self._error(result)

    def _wait_call(self, function: Any, *arguments: Any) -> None:
        """Make a call that may wait, so that signals are handled while it waits."""
        self._use()
        watch = self._watch
        is_main = interrupt.is_main_thread()
        with self._lock:
            handle = self._use()
            former = watch.enter() if watch is not None and is_main else -1
            try:
                while True:
                    result = function(handle, *arguments)
                    # Python runs handlers of signals here. One that raises ends this call.
                    if result != -errno.EINTR or watch is None:
                        break
                    if not is_main and watch.is_sigint_recent():
                        raise Interrupted("Ctrl-C ended the call; it may be made again")
            finally:
                if former != -1 and watch is not None:
                    watch.leave(former)
            if result:
                raise self._error(result)

    def _function(self, name: str) -> Any:
        if not self._library.has(name):
            raise Unsupported(f"libzinf at {self._library.path} has no {name}(): use a newer one")
        return getattr(self._library, name)

    # ---- the model ----

    def add_unit(self, name: str) -> int:
        """Begin a unit: parameters that are unsharded and reduced together. Return its index."""
        index = c.c_uint32()
        self._call(self._library.zinf_unit_add, name.encode(), c.byref(index))
        return index.value

    def add_param(self, name: str, shape: Sequence[int]) -> int:
        """Add a parameter to the newest unit. Return its index in the job.

        shape: elements of each dimension, at least 1; () is a scalar.
        """
        index = c.c_uint32()
        if any(not 0 <= count < 1 << 63 for count in shape):
            raise InvalidArgument(f"parameter '{name}' has the shape {tuple(shape)}")
        dims = (c.c_uint64 * max(1, len(shape)))(*shape)
        self._call(self._library.zinf_param_add, name.encode(), len(shape), dims, c.byref(index))
        return index.value

    def add_dp_group(self, name: str, ranks: Sequence[int]) -> int:
        """Begin a data-parallel group: only its ranks train the units that follow."""
        index = c.c_uint32()
        members = (c.c_uint32 * max(1, len(ranks)))(*ranks)
        self._call(
            self._library.zinf_dp_group_add, name.encode(), members, len(ranks), c.byref(index)
        )
        return index.value

    def set_param_group(self, param: int, group: int) -> None:
        """Put a parameter into a parameter group, 0 to group_count - 1. Before materialize()."""
        self._call(self._library.zinf_param_group, param, group)

    def freeze(self, param: int) -> None:
        """Exclude a parameter from training. Before materialize()."""
        self.set_param_group(param, GROUP_FROZEN)

    def load(self, snapshot: str) -> None:
        """Begin a new job with a snapshot, "JOB/NAME". All ranks, before materialize()."""
        self._wait_call(self._library.zinf_load, snapshot.encode())

    def materialize(self) -> None:
        """Compare the model over all ranks, and map its memory. Collective."""
        self._wait_call(self._library.zinf_materialize)

    @property
    def committed_step(self) -> int:
        """The newest committed step that this rank knows; -1: none."""
        return int(self._library.zinf_committed_step(self._use()))

    @property
    def update_count(self) -> int:
        """Steps that changed the parameters, as of the last wait."""
        return int(self._library.zinf_update_count(self._use()))

    @property
    def lost_step(self) -> int:
        """The step that was lost with the daemon's memory; -1: none was lost."""
        return int(self._library.zinf_lost_step(self._use()))

    def loss_scale(self) -> float:
        """Return the factor for the loss of the next backward; 1 without a loss scale."""
        scale = c.c_double()
        self._call(self._library.zinf_loss_scale, c.byref(scale))
        return scale.value

    # ---- parameters and gradients ----

    def param_address(self, param: int) -> int:
        """Return the address of a parameter, fixed until close(); 0: no such parameter."""
        return self._library.zinf_param_data(self._use(), param) or 0

    def grad_address(self, param: int) -> int:
        """Return the address of this rank's gradient of a parameter; 0: it has none."""
        return self._library.zinf_grad_data(self._use(), param) or 0

    def is_resident(self, param: int) -> bool:
        """Whether the parameter's address has its values now in this rank."""
        function = self._function("zinf_param_is_resident")
        self._use()
        with self._lock:
            return bool(function(self._use(), param))

    def unshard(self, unit: int) -> None:
        """Wait until the parameters of a unit are present, and pin them. Calls nest."""
        with self.waits.of("unshard", unit):
            self._wait_call(self._library.zinf_unshard, unit)

    @property
    def has_rows(self) -> bool:
        """Whether unshard_rows() waits for less than unshard() does."""
        return self._library.has("zinf_unshard_rows")

    def unshard_rows(self, unit: int, param: int, address: int, count: int) -> None:
        """Wait until rows of a parameter of the unit are present, and pin the unit.

        address: of `count` int64, the rows. reshard() comes before any other use of the unit.
        """
        with self.waits.of("unshard", unit):
            self._wait_call(self._function("zinf_unshard_rows"), param, address, count)

    def reshard(self, unit: int) -> None:
        """End one use of a unit."""
        self._call(self._library.zinf_reshard, unit)

    def prefetch(self, unit: int) -> None:
        """Start unshard() without waiting: a hint."""
        self._call(self._library.zinf_prefetch, unit)

    def grad_acquire(self, unit: int) -> None:
        """Wait until the gradient buffer of a unit is this rank's. Its content is undefined."""
        with self.waits.of("gradient", unit):
            self._wait_call(self._library.zinf_grad_acquire, unit)

    def grad_done(self, param: int) -> None:
        """Mark the gradient of a parameter as written."""
        self._call(self._library.zinf_grad_done, param)

    def reduce(self, unit: int) -> None:
        """Hand the gradients of a unit over, without waiting.

        With a GPU, zero2 and zero3 it waits for room in CPU memory.
        """
        call = self._wait_call if self.has_gpu else self._call
        call(self._library.zinf_reduce, unit)

    # ---- a GPU: zinf/gpu.h ----

    def gpu_open(
        self,
        device: str | None = None,
        *,
        param_budget_bytes: int = 0,
        grad_budget_bytes: int = 0,
        stream: int = 0,
        driver: str | None = None,
    ) -> None:
        """Give this rank memory of a GPU, once, before materialize(). Units are copied there.

        device: UUID, "GPU-..."; None: the visible GPU with the index $LOCAL_RANK, or the only one.
        budgets: 0: libzinf chooses. stream: a CUstream of the device's primary context, for which
        calls are ordered; 0: the default stream. driver: path of the CUDA driver; None: the
        system's. Raises GpuFailed, NoSpace, Unsupported.
        """
        options = GpuOptions(
            device=device.encode() if device else None,
            param_budget_bytes=param_budget_bytes,
            grad_budget_bytes=grad_budget_bytes,
            stream=stream or None,
            driver=os.fsencode(driver) if driver else None,
        )
        self._gpu_stream = stream
        try:
            self._wait_call(self._function("zinf_gpu_open"), c.byref(options))
        except ZinfError as error:
            self._gpu_stream = None
            if error.errno not in _NO_GPU:
                raise
            kind = GpuFailed if error.errno == errno.ENODEV else type(error)
            raise kind(f"{error}{_ON_CPU}", error.errno) from None

    @property
    def has_gpu(self) -> bool:
        """Whether gpu_open() was called."""
        return self._gpu_stream is not None

    def gpu_apart(self, unit: int) -> None:
        """Give a unit GPU memory of its own: it is in use beside all others."""
        self._call(self._function("zinf_gpu_apart"), unit)

    def gpu_param_address(self, param: int) -> int:
        """Return the device address of a parameter, fixed until close(); 0: there is none."""
        return int(self._function("zinf_gpu_param")(self._use(), param))

    def gpu_grad_address(self, param: int) -> int:
        """Return the device address of this rank's gradient of a parameter; 0: there is none."""
        return int(self._function("zinf_gpu_grad")(self._use(), param))

    def gpu_stream(self, stream: int) -> None:
        """Order the calls from now on for another CUstream, which waits for the former one."""
        if stream != self._gpu_stream:
            self._gpu_stream = _NO_STREAM  # A switch that fails is made again.
            self._call(self._function("zinf_gpu_stream"), stream or None)
            self._gpu_stream = stream

    def gpu_stats(self) -> GpuStats:
        """Return counters of the GPU since gpu_open()."""
        stats = GpuStats()
        self._call(self._function("zinf_gpu_stats"), c.byref(stats))
        return stats

    def no_sync_begin(self) -> None:
        """Begin micro-batches that are only accumulated. Pairs nest."""
        self._call(self._library.zinf_no_sync_begin)

    def no_sync_end(self) -> None:
        """End what no_sync_begin() began."""
        self._call(self._library.zinf_no_sync_end)

    def write_begin(self, unit: int) -> None:
        """Make the parameters of a unit writable in this rank. Only between steps."""
        self._wait_call(self._library.zinf_param_write_begin, unit)

    def write_end(self, unit: int, root: int = 0) -> None:
        """Make the values of rank `root` the parameters of a unit. Collective.

        The optimizer state of the unit becomes zero.
        """
        self._wait_call(self._library.zinf_param_write_end, unit, root)

    def write_keep(self, unit: int, root: int = 0) -> None:
        """As write_end(), but the optimizer state of the unit stays."""
        self._wait_call(self._function("zinf_param_write_keep"), unit, root)

    def state_read(self, param: int, kind: StateKind, address: int, count: int) -> None:
        """Copy one kind of a parameter's optimizer state. Not collective.

        address: of `count` float32, all elements of the parameter. Not while a step is updated or
        committed: wait for its ticket first.
        """
        self._wait_call(self._function("zinf_state_read"), param, int(kind), address, count)

    def state_write(
        self, param: int, kind: StateKind, address: int, count: int, root: int = 0
    ) -> None:
        """Make the values of rank `root` one kind of a parameter's optimizer state. Collective.

        address: as of state_read(); other ranks than the root may give 0. commit() commits it.
        """
        function = self._function("zinf_state_write")
        self._wait_call(function, param, int(kind), address or None, count, root)

    def set_update_count(self, count: int, betas: tuple[float, float] = (0.0, 0.0)) -> None:
        """Say how many updates the optimizer state has seen. Collective. commit() commits it.

        betas: of the steps to come, for steps without betas of groups.
        """
        self._wait_call(self._function("zinf_update_count_set"), count, *betas)

    def commit(self, blob: bytes = b"") -> None:
        """Commit values of write_end(), and uncommitted steps. Collective. blob: as of step()."""
        self._wait_call(self._library.zinf_commit, blob, len(blob))

    def blob(self) -> bytes:
        """Return the blob that this rank committed with the present step."""
        count = c.c_size_t()
        self._call(self._library.zinf_blob_get, None, 0, c.byref(count))
        buffer = c.create_string_buffer(max(1, count.value))
        self._call(self._library.zinf_blob_get, buffer, count.value, c.byref(count))
        return buffer.raw[: count.value]

    # ---- steps ----

    def step_begin(self, options: StepOptions | None = None) -> None:
        """Begin a step. is_deferred: its hyperparameters come with step_with()."""
        with self.waits.of("begin"):
            self._wait_call(self._library.zinf_step_begin, self._sized(options))

    def grad_norm(self) -> float:
        """Return the global norm of the gradients of a deferred step, before clipping.

        Waits until every rank has handed over every unit. NaN and infinity are returned.
        """
        norm = c.c_double()
        with self.waits.of("norm"):
            self._wait_call(self._function("zinf_grad_norm"), c.byref(norm))
        return norm.value

    def step(self, blob: bytes = b"") -> int:
        """End this rank's part of a step. Return a ticket for wait().

        blob: at most 65536 bytes that are committed with the step: all that the rank needs to
        resume.
        """
        ticket = c.c_uint64()
        with self.waits.of("step"):
            self._wait_call(self._library.zinf_step, blob, len(blob), c.byref(ticket))
        self._tickets.add(ticket.value)
        self.waits.end_step(ticket.value)
        return ticket.value

    def step_with(self, options: StepOptions, blob: bytes = b"") -> int:
        """As step(), with the hyperparameters of a deferred step, equal on all ranks."""
        ticket = c.c_uint64()
        with self.waits.of("step"):
            self._wait_call(
                self._function("zinf_step_with"),
                self._sized(options),
                blob,
                len(blob),
                c.byref(ticket),
            )
        self._tickets.add(ticket.value)
        self.waits.end_step(ticket.value)
        return ticket.value

    def step_discard(self) -> None:
        """End the step that was begun without changing anything. Collective."""
        self._wait_call(self._function("zinf_step_discard"))

    def wait(self, ticket: int, timeout: float | None = None) -> StepStats:
        """Wait for a ticket, once. Return the statistics of a step.

        timeout: seconds; then Timeout, and the ticket stays. None: the deadline of the session.
        """
        stats = StepStats()
        try:
            with self.waits.of("commit"):
                self._wait(ticket, timeout, stats)
        except (Interrupted, Timeout):  # The ticket may be waited for again.
            raise
        except ZinfError:
            self._tickets.discard(ticket)
            raise
        self._tickets.discard(ticket)
        self.waits.note(ticket, stats)
        return stats

    def _wait(self, ticket: int, timeout: float | None, stats: StepStats) -> None:
        if timeout is not None:
            milliseconds = min(max(1, round(timeout * 1000)), 0xFFFFFFFF)
            self._wait_call(self._library.zinf_wait_for, ticket, milliseconds, c.byref(stats))
        elif self._watch is not None:
            self._wait_call(self._library.zinf_wait, ticket, c.byref(stats))
        else:
            self._wait_in_slices(ticket, stats)

    def _wait_in_slices(self, ticket: int, stats: StepStats) -> None:
        deadline = time.monotonic() + (self.config.timeout or 600.0)
        while True:
            try:
                self._call(self._library.zinf_wait_for, ticket, _SLICE_MS, c.byref(stats))
                return
            except Timeout:
                if time.monotonic() >= deadline:
                    raise

    def test(self, ticket: int) -> bool:
        """Whether a ticket has completed; never waits."""
        is_done = c.c_bool()
        self._call(self._library.zinf_test, ticket, c.byref(is_done))
        return is_done.value

    def cancel(self, ticket: int) -> None:
        """Cancel the ticket of a tensor or collective. It must still be waited for."""
        self._call(self._library.zinf_cancel, ticket)

    def join(self, divides_by_live: bool = False) -> None:
        """Take part in the steps of other ranks without data, until all ranks call it."""
        self._wait_call(self._library.zinf_join, divides_by_live)

    # ---- tensors: zinf/tensor.h. At most 4096 of a rank at once; `id` is any number ----

    def tensor_open(self, budget_bytes: int) -> None:
        """Make memory for this rank's tensors, once, after materialize()."""
        self._wait_call(self._library.zinf_tensor_open, budget_bytes)

    def tensor_put(self, id: int, address: int, count: int) -> int:
        """Hand `count` bytes over, which are copied before this returns. Return a ticket."""
        ticket = c.c_uint64()
        self._wait_call(self._library.zinf_tensor_put, id, address, count, c.byref(ticket))
        return ticket.value

    def tensor_prefetch(self, id: int) -> int:
        """Announce that a tensor is needed soon. Return a ticket, which must be waited for."""
        ticket = c.c_uint64()
        self._call(self._library.zinf_tensor_prefetch, id, c.byref(ticket))
        return ticket.value

    def tensor_get(self, id: int, address: int, count: int) -> int:
        """Copy a tensor of `count` bytes. Return a ticket: wait() fills the memory."""
        ticket = c.c_uint64()
        self._call(self._library.zinf_tensor_get, id, address, count, c.byref(ticket))
        return ticket.value

    def tensor_free(self, id: int) -> None:
        """Delete a tensor, of which no ticket is pending."""
        self._call(self._library.zinf_tensor_free, id)

    # ---- the job ----

    def snapshot(self, name: str | None = None, keep: int = 0) -> int:
        """Keep the committed step. One rank calls it. Return the step.

        name: unique in the job; None: "step-N". keep: N > 0 makes it an automatic snapshot, of
        which the newest N stay.
        """
        options = SnapshotOptions(keep_count=keep, name=name.encode() if name else None)
        step = c.c_int64()
        self._wait_call(self._library.zinf_snapshot, c.byref(options), c.byref(step))
        return step.value

    def barrier(self) -> None:
        """Wait until all ranks of the job have called it."""
        self._wait_call(self._library.zinf_barrier)

    def ping(self) -> None:
        """Make a round trip through the daemon."""
        self._wait_call(self._library.zinf_ping)

    # ---- the end ----

    @property
    def is_closed(self) -> bool:
        """Whether close() or destroy_job() ended the session."""
        return self._handle is None

    def close(self) -> None:
        """Leave the job, which stays. May be called again. Does nothing in a forked child."""
        if self._is_forked:
            return
        with self._lock:
            handle, self._handle = self._handle, None
            if handle is not None:
                self._forget(handle)
                self._library.zinf_detach(handle)

    def destroy_job(self) -> None:
        """Leave the job and delete it. Every other rank must have left. Waits for a step."""
        with self._lock:
            for ticket in list(self._tickets):
                try:
                    self.wait(ticket)
                except (Interrupted, Timeout):
                    raise
                except ZinfError:  # The job goes: a step that failed does not matter.
                    pass
            self._wait_call(self._library.zinf_destroy_job)
            handle, self._handle = self._handle, None
            if handle is not None:
                self._forget(handle)

    def _forget(self, handle: c.c_void_p) -> None:
        _open_jobs[self.job] -= 1
        for call in self.on_close:
            call()
        if self._watch is not None:
            self._watch.remove(handle)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _sized(self, options: StepOptions | None) -> Any | None:
        """Return options for a call. An earlier library takes the fields that it has."""
        if options is None:
            options = StepOptions()
        if not self._library.has("zinf_step_with"):
            options.bytes = c.sizeof(StepOptions) - c.sizeof(c.c_void_p)
        return c.byref(options)


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_open_jobs: Counter[str] = Counter()  # sessions of this process that were not closed, by job


def _after_fork() -> None:
    _open_jobs.clear()
    children: list[Session] = list(_sessions)
    for session in children:
        session._is_forked = True


os.register_at_fork(after_in_child=_after_fork)
