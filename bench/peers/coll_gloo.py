#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gloo as a peer of the suite `coll`, through torch.distributed: one rank that does what bench/coll_order.h says.

usage: coll_gloo.py BUFFER_BYTES
"""
import sys

import rank as peer


class Rank:
    def __init__(self, rank, world, buffer_bytes):
        self.torch, self.dist = peer.join(rank, world)
        self.world = world
        self.torch.set_num_threads(1)
        self.source = self.memory(buffer_bytes)
        self.target = self.memory(buffer_bytes)

    def memory(self, byte_count):
        return peer.memory(self.torch, byte_count // 4, self.torch.float32)

    def words(self):
        return ""

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
        return peer.timed(self.dist, self.call_of(operation, size // 4), iterations)


if __name__ == "__main__":
    peer.serve(lambda rank, world: Rank(rank, world, int(sys.argv[1])))
