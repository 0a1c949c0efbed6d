#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gloo as a peer of the suite `coll`, through torch.distributed: one rank that does what bench/coll_order.h says.

usage: coll_gloo.py BUFFER_BYTES
"""
import sys

import rank as peer


class Rank:
    def __init__(self, rank, world, buffer_bytes):
        peer.pin(rank, world)
        self.torch, self.dist = peer.join(rank, world)
        self.world = world
        self.torch.set_num_threads(1)
        self.source = self.memory(buffer_bytes)
        self.target = self.memory(buffer_bytes)

    def memory(self, byte_count):
        return peer.memory(self.torch, byte_count // 4, self.torch.float32)

    def words(self):
        return ""

    @staticmethod
    def if_it_works(call):
        """Older releases of torch have Gloo's collectives over lists of tensors only."""
        try:
            call()
            return call
        except (AttributeError, RuntimeError):
            return None

    def call_of(self, operation, count):
        """A function without arguments, as little of Python as possible around the call."""
        dist, target, source = self.dist, self.target[:count], self.source[:count]
        block = count // self.world
        if operation == "barrier":
            return dist.barrier
        if operation == "all_reduce":
            return lambda: dist.all_reduce(target)
        if operation == "all_gather":
            whole = self.if_it_works(lambda: dist.all_gather_into_tensor(target, source[:block]))
            blocks = list(target.chunk(self.world))
            return whole or (lambda: dist.all_gather(blocks, source[:block]))
        if operation == "broadcast":
            return lambda: dist.broadcast(target, 0)
        if operation == "reduce_scatter":
            whole = self.if_it_works(lambda: dist.reduce_scatter_tensor(target[:block], source))
            blocks = list(source.chunk(self.world))
            return whole or (lambda: dist.reduce_scatter(target[:block], blocks))
        return lambda: dist.all_to_all_single(target, source)

    def obey(self, operation, size, iterations):
        return peer.timed(self.dist, self.call_of(operation, size // 4), iterations)


if __name__ == "__main__":
    peer.serve(lambda rank, world: Rank(rank, world, int(sys.argv[1])))
