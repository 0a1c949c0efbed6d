#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's own NVMe-resident optimizer step, a peer of the suite `nvme`.

Drives the swapper classes and DeepSpeedCPUAdam of the installed package the way its ZeRO-3 optimizer does for a model of
PARAMS fp32 master parameters in sub-groups of 16 Mi: gradients to the swapper (fp32, in four pieces each), then for each
sub-group swap in, unscale, Adam, copy to bf16, swap out. Nothing of the package is changed. Gradients are widened before,
outside of what is timed, as a GPU does it.

Talks on standard output, a JSON object a line: {"ready": version} or {"skip": reason} first; then for each line read
{"seconds": wall, "cpu_s": user and system of this process}.

usage: deepspeed_step.py DIRECTORY PARAMS default|best
  default  the package's own settings: serial swapper, blocks of 1 MiB, depth 8
  best     pipelined both ways with the buffers that needs; huge pages are the caller's affair (GLIBC_TUNABLES)
"""
import json
import os
import resource
import sys
import time

SUB_GROUP = 16 << 20
PIECES = 4


def say(**words):
    os.write(OUT, (json.dumps(words) + "\n").encode())


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class SwapConfig:
    """What the swapper reads of zero_optimization.offload_optimizer."""

    def __init__(self, pipelined):
        self.pipeline_read = self.pipeline_write = pipelined
        # Serial: parameter, two moments, gradient. Pipelined: those of the present, the next and the former one.
        self.buffer_count = 12 if pipelined else 4


class Step:
    def __init__(self, directory, params, pipelined):
        import torch
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        from deepspeed.runtime.swap_tensor.partitioned_optimizer_swapper import PartitionedOptimizerSwapper
        from deepspeed.runtime.swap_tensor.pipelined_optimizer_swapper import PipelinedOptimizerSwapper

        count = params // SUB_GROUP
        self.masters = []
        for index in range(count):
            master = torch.nn.Parameter(torch.empty(0, dtype=torch.float32))
            master.ds_id = str(index)
            self.masters.append(master)
        self.grads = [torch.full((SUB_GROUP,), 0.01) for _ in range(count)]
        self.bf16 = [torch.zeros(SUB_GROUP, dtype=torch.bfloat16) for _ in range(count)]
        self.optimizer = DeepSpeedCPUAdam([torch.nn.Parameter(torch.zeros(1))], lr=1e-4)
        self.optimizer.param_groups[0]["params"] = []
        aio = {"block_size": 1 << 20, "queue_depth": 8, "single_submit": False, "overlap_events": True,
               "intra_op_parallelism": 1, "use_gds": False}
        kind = PipelinedOptimizerSwapper if pipelined else PartitionedOptimizerSwapper
        self.swapper = kind(swap_config=SwapConfig(pipelined), aio_config=aio, base_folder=directory,
                            optimizer=self.optimizer, largest_numel=SUB_GROUP, device="cpu", dtype=torch.float32,
                            timers=None)
        for master in self.masters:
            self.swapper.initialize_parameters(parameters=[master], src_tensors=[torch.full((SUB_GROUP,), 0.5)])

    def run(self):
        piece = SUB_GROUP // PIECES
        offsets = [i * piece for i in range(PIECES)]
        for master, grad in zip(self.masters, self.grads):
            self.swapper.swap_out_gradients(parameter=master, gradient_offsets=offsets,
                                            gradient_tensors=[grad.narrow(0, o, piece) for o in offsets])
        group = self.optimizer.param_groups[0]
        for index, master in enumerate(self.masters):
            following = self.masters[index + 1] if index + 1 < len(self.masters) else None
            self.swapper.swap_in_optimizer_state(parameter=master, async_parameter=following)
            master.grad.mul_(1.0)
            group["params"] = [master]
            self.optimizer.step()
            group["params"] = []
            self.bf16[index].copy_(master.data)
            self.swapper.swap_out_optimizer_state(parameter=master, async_swap=following is not None)
            master.grad = None


def prepare(directory, params, pipelined):
    """The step, or None after saying what is missing."""
    os.environ.update(DS_ACCELERATOR="cpu", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "0")
    # Its extensions are compiled on first use.
    os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
    try:
        import deepspeed
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        step = Step(directory, params, pipelined)
        step.run()  # moments come to life, files are made
        step.run()
    except Exception as error:  # whatever keeps the package from running here is the reason of the skip
        say(skip=f"{type(error).__name__}: {error}"[:300])
        return None
    say(ready=deepspeed.__version__)
    return step


def main():
    directory, params, setting = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    step = prepare(directory, params, setting == "best")
    if not step:
        return
    for _ in sys.stdin:
        cpu, begin = cpu_s(), time.perf_counter()
        step.run()
        say(seconds=time.perf_counter() - begin, cpu_s=cpu_s() - cpu)


if __name__ == "__main__":
    # The package logs to standard output: what it says goes to standard error.
    OUT = os.dup(1)
    os.dup2(2, 1)
    main()
