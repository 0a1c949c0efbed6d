#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's all_reduce through shared memory as a peer of the suite `coll`: one rank that does what bench/coll_order.h says.

DeepSpeed compiles the operation with g++ when it is first used. It has all_reduce only.

usage: coll_deepspeed.py BUFFER_BYTES
"""
import os
import sys

import rank as peer


class Rank:
    def __init__(self, rank, world, buffer_bytes):
        self.own_cpus = peer.pin(rank, world)
        # g++ and ninja are found beside the interpreter; the compiled operation is kept between runs.
        os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
        cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(cache, "zinf/torch-extensions"))
        os.environ["LOCAL_SIZE"] = str(world)
        # Names of its shared memory are made of these two.
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "bench", str(os.getppid())
        self.torch, self.dist = peer.join(rank, world)
        import deepspeed
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        self.version = deepspeed.__version__
        ShareMemCommBuilder().load(verbose=False).initialize(world, rank)
        self.torch.set_num_threads(1)
        self.target = peer.memory(self.torch, buffer_bytes // 4, self.torch.float32)

    def words(self):
        return f", DeepSpeed {self.version}"

    def obey(self, operation, size, iterations):
        if operation != "all_reduce":
            raise RuntimeError("DeepSpeed's shared memory has all_reduce only")
        target, reduce = self.target[:size // 4], self.torch.ops.deepspeed.inference_all_reduce_
        return peer.timed(self.dist, lambda: reduce(target), iterations)


if __name__ == "__main__":
    peer.serve(lambda rank, world: Rank(rank, world, int(sys.argv[1])))
