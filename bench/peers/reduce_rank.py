#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of the part `all_reduce` of the suite `torch`: torch.distributed over zinf and over Gloo, in one process.

Started by train_side.py. RANK, WORLD_SIZE and COLL_STORE (a file that the ranks share, to find each other) come in the environment.
Talks in lines of JSON: {"ready": words, ...} or {"skip": reason} first; then for a line "reduce BYTES COUNT" {"zinf": [begin, end],
"gloo": [begin, end]}, seconds on the clock that ranks share, of COUNT calls of all_reduce over f32 tensors of BYTES.
"""
import json
import os
import signal
import sys
import time

import rank as peer


def say(**words):
    print(json.dumps(words), flush=True)


class Rank:
    def __init__(self):
        number, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        peer.pin(number, world)
        self.torch, self.dist = peer.join(number, world, "zinf")
        self.torch.set_num_threads(1)
        self.groups = {"gloo": self.dist.new_group(backend="gloo"), "zinf": None}
        self.is_reversed = False

    def reduce(self, byte_count, count):
        answer = {}
        order = list(self.groups)[::-1] if self.is_reversed else list(self.groups)
        self.is_reversed = not self.is_reversed
        for name in order:
            group = self.groups[name]
            tensor = self.torch.ones(byte_count // 4)
            self.dist.all_reduce(tensor, group=group)  # does not count
            if not bool((tensor == self.dist.get_world_size()).all()):
                raise RuntimeError(f"{name}: an all_reduce of ones has other values than their sum")
            tensor.zero_()  # Sums of sums would become infinite.
            self.dist.barrier()
            begin = time.clock_gettime(time.CLOCK_MONOTONIC)
            for _ in range(count):
                self.dist.all_reduce(tensor, group=group)
            answer[name] = [begin, time.clock_gettime(time.CLOCK_MONOTONIC)]
        return answer


def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        rank = Rank()
    except Exception as error:  # whatever keeps a backend from running here is the reason of the skip
        say(skip=f"{type(error).__name__}: {error}"[:300])
        return
    say(ready=peer.named(rank.torch.__version__), base=dict.fromkeys(("anonymous", "shared", "pinned"), 0))
    for line in sys.stdin:
        say(**rank.reduce(*map(int, line.split()[1:])))
    rank.dist.destroy_process_group()


if __name__ == "__main__":
    main()
