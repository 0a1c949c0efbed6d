# SPDX-License-Identifier: Apache-2.0
"""What the peers over torch.distributed share: their group, memory on huge pages, and the life of one rank as bench/coll_order.h says.

RANK, WORLD_SIZE, COLL_SOCKET and COLL_STORE (a file that all ranks share, to find each other) come in the environment.
"""
import datetime
import mmap
import os
import socket
import time

# Of torch's releases that are peers here (bench/requirements.txt, and Debian 12's).
YEARS = {"1.13": 2022, "2.15": 2026}


def named(version):
    """A version with its year, for the rows."""
    year = YEARS.get(".".join(version.split(".")[:2]))
    return f"torch {version.split('+')[0]}" + (f" ({year})" if year else "")


def pin(rank, world):
    """To this rank's share of the CPUs, as zinf's ranks are; threads that start later are pinned with it. Return: how many CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    each = max(1, len(cpus) // world)
    first = rank * each % len(cpus)
    os.sched_setaffinity(0, cpus[first:first + each])
    return each


def join(rank, world, backend="gloo"):
    """torch and torch.distributed, with the group of all ranks."""
    import torch
    import torch.distributed as dist

    if backend == "zinf":
        import zinf.distributed  # noqa: F401 - registers the backend
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(backend, init_method="file://" + os.environ["COLL_STORE"], rank=rank, world_size=world,
                            timeout=datetime.timedelta(minutes=5))
    return torch, dist


def memory(torch, count, dtype):
    """A tensor of zeros, (count,), on pages of its own."""
    pages = mmap.mmap(-1, count * torch.empty(0, dtype=dtype).element_size())
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype).fill_(0)


def timed(dist, call, iterations):
    """Begin and end of all of them, on the clock that ranks share."""
    dist.barrier()
    started = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    for _ in range(iterations):
        call()
    return started, time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def serve(make):
    """make(rank, world): an object with .torch, .words() for the hello, and .obey(operation, size, iterations)."""
    number, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(os.environ["COLL_SOCKET"])
    try:
        rank = make(number, world)
        version = named(rank.torch.__version__)
    except Exception as error:  # whatever keeps the package from running here is the reason of the skip
        link.send(f"{number} skip {type(error).__name__}: {error}"[:200].encode())
        return
    link.send(f"{number} ready {version}{rank.words()}".encode())
    while packet := link.recv(256):
        operation, size, iterations, _ = packet.decode().split()
        try:
            link.send("{} {}".format(*rank.obey(operation, int(size), int(iterations))).encode())
        except RuntimeError as error:
            link.send(f"cannot {str(error).splitlines()[0]}"[:200].encode())
