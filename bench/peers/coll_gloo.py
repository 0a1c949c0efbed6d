#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gloo as a peer of the suite `coll`, through torch.distributed: one rank that does what bench/coll_order.h says.

RANK, WORLD_SIZE, COLL_SOCKET and COLL_STORE (a file that all ranks share, to find each other) come in the environment.

usage: coll_gloo.py BUFFER_BYTES
"""
import datetime
import mmap
import os
import socket
import sys
import time


class Rank:
    def __init__(self, rank, world, buffer_bytes):
        import torch
        import torch.distributed as dist

        self.dist, self.torch, self.world = dist, torch, world
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method="file://" + os.environ["COLL_STORE"], rank=rank, world_size=world,
                                timeout=datetime.timedelta(minutes=5))
        self.source = self.memory(buffer_bytes)
        self.target = self.memory(buffer_bytes)

    def memory(self, count):
        pages = mmap.mmap(-1, count)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        return self.torch.frombuffer(pages, dtype=self.torch.float32).fill_(0)

    def call_of(self, operation, count):
        """A function without arguments, as little of Python as possible around the call."""
        dist, target, source = self.dist, self.target[:count], self.source[:count]
        block = count // self.world
        if operation == "barrier":
            return dist.barrier
        if operation == "all_reduce":
            return lambda: dist.all_reduce(target)
        if operation == "all_gather":
            blocks = list(target.chunk(self.world))
            return lambda: dist.all_gather(blocks, source[:block])
        if operation == "broadcast":
            return lambda: dist.broadcast(target, 0)
        if operation == "reduce_scatter":
            blocks = list(source.chunk(self.world))
            return lambda: dist.reduce_scatter(target[:block], blocks)
        return lambda: dist.all_to_all_single(target, source)

    def obey(self, operation, size, iterations):
        call = self.call_of(operation, size // 4)
        self.dist.barrier()
        started = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        for _ in range(iterations):
            call()
        return started, time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def main():
    number, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(os.environ["COLL_SOCKET"])
    try:
        rank = Rank(number, world, int(sys.argv[1]))
        version = rank.torch.__version__
    except Exception as error:  # whatever keeps the package from running here is the reason of the skip
        link.send(f"{number} skip {type(error).__name__}: {error}"[:200].encode())
        return
    link.send(f"{number} ready torch {version}".encode())
    while packet := link.recv(256):
        operation, size, iterations, _ = packet.decode().split()
        try:
            link.send("{} {}".format(*rank.obey(operation, int(size), int(iterations))).encode())
        except RuntimeError as error:
            link.send(f"cannot {str(error).splitlines()[0]}"[:200].encode())


if __name__ == "__main__":
    main()
