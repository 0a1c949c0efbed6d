#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a side of the suite `torch`: a language model in bf16 that one of the packages trains.

Started by train_side.py. RANK, WORLD_SIZE, COLL_STORE (a file that the ranks share, to find each other), TRAIN_DIR (a directory
of the side) come in the environment. Talks in lines of JSON: {"ready": words, "base": memory, "imported": and
"stepped": on the clock that ranks share} or {"skip": reason} first; then for a line "steps N" {"ends": [seconds on the clock that ranks share], "loss": x, "cpu_s": user and system of these
steps, ...}.

The model has the shape of the configuration, random weights and a whole vocabulary; its tokens are the bytes of this
repository's documents. A step is forward, backward and AdamW, without clipping.

TRAIN_STATS=1: zinf's waits by unit and by step go to standard error at the end. TRAIN_PROFILE=FILE: profiles of Python.
TRAIN_TRACE=1: the error behind a skip.

usage: train_rank.py SIDE MODEL TOKENS
"""
import gc
import json
import os
import resource
import signal
import sys
import time

import rank as peer

MODELS = ("gpt2", "llama", "tiny")
LR, DECAY = 1e-4, 0.01


def say(**words):
    os.write(OUT, (json.dumps(words) + "\n").encode())


def memory_of(pid):
    """Bytes of a process: anonymous, its share of shared memory, and of both what is locked or pinned."""
    fields = {}
    for name in ("smaps_rollup", "status"):
        with open(f"/proc/{pid}/{name}") as file:
            for line in file:
                words = line.split()
                if len(words) > 2 and words[-1] == "kB":
                    fields[name + words[0]] = int(words[1]) << 10
    return {
        "anonymous": fields["smaps_rollupPss_Anon:"],
        "shared": fields["smaps_rollupPss_Shmem:"] + fields["smaps_rollupShared_Hugetlb:"] + fields["smaps_rollupPrivate_Hugetlb:"],
        "pinned": fields["statusVmLck:"] + fields["statusVmPin:"],
    }


def cpu_s():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def text():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
    return b"".join(open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder)) if name.endswith(".md"))


def make_model(name, tokens):
    """Random weights, f32."""
    import torch
    import transformers

    torch.manual_seed(1)
    if name == "llama":  # 297 M parameters
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=18, num_attention_heads=16,
            num_key_value_heads=16, max_position_embeddings=1024, tie_word_embeddings=False, use_cache=False))
    small = {"vocab_size": 256, "n_embd": 64, "n_layer": 2, "n_head": 2} if name == "tiny" else {}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_positions=1024, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        **{"bos_token_id": 0, "eos_token_id": 0, **small}))


def blocks_of(model):
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


class Alone:
    """Forward and backward, gradients dropped: the matrix products that every side has."""

    def __init__(self, torch, model, rank, world):
        self.torch = torch
        self.model = model.to(torch.bfloat16)
        self.take()

    def take(self):
        """Finish, after the model is there."""

    def words(self):
        return ""

    def step(self, batch):
        loss = self.model(input_ids=batch, labels=batch).loss
        loss.backward()
        self.update()
        return loss

    def update(self):
        self.model.zero_grad(set_to_none=True)

    def settle(self):
        """Wait for what goes on after the last step."""

    def statistics(self):
        return {}

    def close(self):
        pass


class Ddp(Alone):
    """bf16 parameters, and AdamW's moments in bf16: what DDP users do who have little memory."""

    def take(self):
        torch = self.torch
        self.model = torch.nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=DECAY, fused=True)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Fsdp2(Ddp):
    """Parameters and moments in f32, sharded; bf16 in forward, backward and reduction."""

    def __init__(self, torch, model, rank, world):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.torch, self.model = torch, model
        mesh = init_device_mesh("cpu", (world,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        for block in blocks_of(model):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY, fused=True)


class DeepSpeed(Alone):
    """ZeRO-3, parameters and optimizer state in memory or in files, as its tutorial has it."""

    device, aio, buffers = "cpu", {}, {}

    def __init__(self, torch, model, rank, world):
        import deepspeed

        self.torch = torch
        self.version = deepspeed.__version__
        place = {"device": self.device}
        if self.device == "nvme":
            self.need_aio()
            place["nvme_path"] = os.environ["TRAIN_DIR"]
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": LR, "weight_decay": DECAY}},
            "zero_optimization": {"stage": 3, "offload_optimizer": {**place, **self.buffers},
                                  "offload_param": {**place, **self.param_buffers(model)}},
            **self.aio,
        }
        deepspeed.init_distributed(dist_backend="gloo", verbose=False)
        self.model, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)

    def param_buffers(self, model):
        if self.device != "nvme":
            return {}
        # It refuses a parameter that is larger than a buffer.
        return {"buffer_size": max(p.numel() for p in model.parameters()) + 4096}

    @staticmethod
    def need_aio():
        from deepspeed.ops.op_builder import AsyncIOBuilder

        if not AsyncIOBuilder().is_compatible(verbose=False):
            raise RuntimeError("its async_io needs libaio's headers (tools/deps bench)")

    def words(self):
        return f"DeepSpeed {self.version}"

    def step(self, batch):
        loss = self.model(input_ids=batch, labels=batch).loss
        self.model.backward(loss)
        self.model.step()
        return loss


class DeepSpeedNvme(DeepSpeed):
    device = "nvme"


class DeepSpeedTuned(DeepSpeedNvme):
    """Large blocks, deep queues, two threads, pipelined both ways with the buffers that needs."""

    aio = {"aio": {"block_size": 8 << 20, "queue_depth": 32, "intra_op_parallelism": 2, "single_submit": False,
                   "overlap_events": True}}
    buffers = {"pipeline_read": True, "pipeline_write": True, "buffer_count": 12}


class Zinf(Alone):
    """Parameters, gradients and AdamW's state in zinf, with a master in f32."""

    settings = {}

    def take(self):
        import zinf

        optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=LR, weight_decay=DECAY)
        self.model, self.optimizer = zinf.prepare(self.model, optimizer, job=f"bench-{sys.argv[1]}", **self.settings)
        self.engine = zinf.engine_of(self.model)

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def settle(self):
        self.stats = self.engine.last_stats()

    def statistics(self):
        # JSON has no NaN, which the norm is where none was computed.
        values = {name: getattr(self.stats, name) for name, _ in self.stats._fields_ if "reserved" not in name}
        return {name: value for name, value in values.items() if value == value}

    def close(self):
        if os.environ.get("TRAIN_STATS"):
            import zinf

            sys.stderr.write(f"{zinf.stats(self.model)}\n")
        self.engine.close()


class ZinfNvmeLate(Zinf):
    settings = {"strategy": "zero3", "offload_param": "nvme", "offload_optimizer": "nvme"}


class ZinfNvme(ZinfNvmeLate):
    """No peer clips here: units are updated during backward."""

    settings = {**ZinfNvmeLate.settings, "update_early": True}


class ZinfCpu(Zinf):
    settings = {"strategy": "zero3", "offload_param": "cpu", "offload_optimizer": "cpu"}


class ZinfNone(Zinf):
    settings = {"strategy": "ddp", "offload_param": "none", "offload_optimizer": "none"}


SIDES = {
    "alone": Alone, "ddp": Ddp, "fsdp2": Fsdp2, "deepspeed-cpu": DeepSpeed, "deepspeed-nvme": DeepSpeedNvme,
    "deepspeed-tuned": DeepSpeedTuned, "zinf-nvme": ZinfNvme, "zinf-nvme-late": ZinfNvmeLate, "zinf-cpu": ZinfCpu, "zinf-none": ZinfNone,
}


class Rank:
    def __init__(self, side, model, tokens):
        number, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        threads = peer.pin(number, world)
        torch, self.dist = peer.join(number, world)
        from transformers import GPT2LMHeadModel, LlamaForCausalLM  # noqa: F401 - every side has them

        made = SIDES[side]
        torch.set_num_threads(threads)
        gc.collect()
        self.base = memory_of("self")
        self.imported = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.torch, self.number, self.world, self.tokens = torch, number, world, tokens
        self.side = made(torch, make_model(model, tokens), number, world)
        gc.collect()
        self.data = torch.frombuffer(bytearray(text()), dtype=torch.uint8).long()
        self.count = 0
        self.stepped = self.steps(2)["ends"][0]  # moments come to life, files are made

    def batch(self):
        first = (self.count * self.world + self.number) * self.tokens % (len(self.data) - self.tokens)
        self.count += 1
        return self.data[first:first + self.tokens].view(1, -1)

    def steps(self, count):
        """The end of each step, the first one's as well: it begins what is measured."""
        ends = []
        self.dist.barrier()
        for number in range(count + 1):
            if number == 1:
                cpu = cpu_s()
            loss = self.side.step(self.batch())
            ends.append(time.clock_gettime(time.CLOCK_MONOTONIC))
        cpu = cpu_s() - cpu
        self.side.settle()
        return {"ends": ends, "loss": float(loss.detach()), "cpu_s": cpu, "statistics": self.side.statistics()}


def main():
    side, model, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Packages compile on first use.
    os.environ["PATH"] = os.path.dirname(sys.executable) + ":" + os.environ["PATH"]
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", DS_ACCELERATOR="cpu",
                      LOCAL_RANK=os.environ["RANK"], LOCAL_WORLD_SIZE=os.environ["WORLD_SIZE"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        rank = Rank(side, model, tokens)
    except Exception as error:  # whatever keeps the package from running here is the reason of the skip
        if os.environ.get("TRAIN_TRACE"):
            raise
        say(skip=f"{type(error).__name__}: {error}"[:300])
        return
    say(ready=f"{peer.named(rank.torch.__version__)} {rank.side.words()}".strip(), base=rank.base, imported=rank.imported,
        stepped=rank.stepped)
    profile = None
    if os.environ.get("TRAIN_PROFILE"):
        import cProfile

        profile = cProfile.Profile()
    for line in sys.stdin:
        if profile:
            profile.enable()
        say(**rank.steps(int(line.split()[1])))
        if profile:
            profile.disable()
    if profile:
        profile.dump_stats(f"{os.environ['TRAIN_PROFILE']}.{side}.{os.environ['RANK']}")
    rank.side.close()


if __name__ == "__main__":
    # Packages log to standard output: what they say goes to standard error.
    OUT = os.dup(1)
    os.dup2(2, 1)
    main()
