#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A side of the suite `torch`: the ranks of one package (train_rank.py), and zinf's daemon.

Talks in lines of JSON: {"ready": words} or {"skip": reason} first; then for each line
  steps N   {"seconds": of a step, "cpu_s": of a step, all processes, "loss": of rank 0, "statistics": zinf's}
  memory N  {"anonymous": .., "shared": .., "pinned": ..}: peaks of the sum over all processes in N steps, beyond what the ranks
            had after importing torch and transformers; pinned bytes are among the others. "base" is what the ranks had.
  restart 1 {"seconds": from kill -9 of all ranks to the end of the first step of new ones, less what their imports took}
  reduce BYTES N  {"zinf": seconds of an all_reduce, "gloo": the same}: of the side "zinf-reduce", whose ranks train nothing (reduce_rank.py)

usage: train_side.py SIDE MODEL TOKENS RANKS DIRECTORY BUILD
"""
import glob
import json
import os
import signal
import subprocess
import sys
import threading
import time

from train_rank import memory_of

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE_S = 0.02
STORES = {"gpt2": "6G", "llama": "12G", "tiny": "256M"}  # for state on NVMe
KINDS = ("anonymous", "shared", "pinned")
TICKS = os.sysconf("SC_CLK_TCK")


def say(**words):
    print(json.dumps(words), flush=True)


def cpu_of(pid):
    """Seconds of a process, user and system."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def extensions():
    """The folder of what DeepSpeed compiles on first use. A lock of a build that was killed would be waited for without end."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "zinf/torch-extensions")
    for lock in glob.glob(f"{folder}/*/lock"):
        os.unlink(lock)
    return folder


def add(first, second):
    return {kind: first[kind] + second[kind] for kind in KINDS}


class Sampler(threading.Thread):
    """Peaks of what processes have, until stop()."""

    def __init__(self, pids):
        super().__init__()
        self.pids, self.ending = pids, threading.Event()
        self.peaks = dict.fromkeys((*KINDS, "sum"), 0)

    def run(self):
        is_ending = False
        while not is_ending:  # The last sample comes after the end, for steps that are shorter than a sample.
            is_ending = self.ending.wait(SAMPLE_S)
            now = dict.fromkeys(KINDS, 0)
            for pid in self.pids:
                now = add(now, memory_of(pid))
            now["sum"] = now["anonymous"] + now["shared"]
            for kind, value in now.items():
                self.peaks[kind] = max(self.peaks[kind], value)

    def stop(self):
        self.ending.set()
        self.join()
        return self.peaks


class Side:
    def __init__(self, name, model, tokens, ranks, directory, build):
        self.processes, self.daemon = [], None
        environ = {**os.environ, "WORLD_SIZE": str(ranks), "TRAIN_DIR": directory, "PYTHONPATH": f"{HERE}/../../python",
                   "ZINF_LIBRARY": f"{build}/lib/libzinf.so.0"}
        if name.startswith("zinf"):
            environ["ZINF_SOCKET"] = self.start_daemon(directory, build, STORES[model] if "nvme" in name else "64M")
        environ["TORCH_EXTENSIONS_DIR"] = extensions()
        program = [f"{HERE}/reduce_rank.py"] if name == "zinf-reduce" else [f"{HERE}/train_rank.py", name, model, tokens]
        self.words, self.environ, self.ranks = [sys.executable, *program], environ, ranks
        self.starts = 0
        self.start_ranks()

    def start_ranks(self):
        # DeepSpeed reads MASTER_PORT, but uses the process group that the rank has made.
        more = {"COLL_STORE": f"{self.environ['TRAIN_DIR']}/ranks-{self.starts}", "TORCHELASTIC_RESTART_COUNT": str(self.starts),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        self.starts += 1
        self.processes = [subprocess.Popen(self.words, env={**self.environ, **more, "RANK": str(rank)}, text=True,
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE) for rank in range(self.ranks)]
        self.pids = [process.pid for process in self.processes] + ([self.daemon.pid] if self.daemon else [])

    def start_daemon(self, directory, build, size):
        read, write = os.pipe()
        self.daemon = subprocess.Popen(
            [f"{build}/bin/zinfd", "--user", "--dir", directory, "--size", size, "--ready-fd", str(write)], pass_fds=[write],
            stdout=2)
        os.close(write)
        with os.fdopen(read) as ready:
            if ready.read().strip() != "ready":
                raise RuntimeError("zinfd did not start")
        return f"{directory}/zinfd.sock"

    def hear(self):
        """A line of each rank."""
        answers = []
        for process in self.processes:
            line = process.stdout.readline()
            answers.append(json.loads(line) if line else {"skip": "a rank ended"})
        return answers

    def ask(self, line):
        for process in self.processes:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        return self.hear()

    def steps(self, count):
        cpu = sum(map(cpu_of, self.pids))
        answers = self.ask(f"steps {count}")
        # The ranks' first step is not among what they count; the daemon's is here.
        cpu = sum(map(cpu_of, self.pids)) - cpu
        ends = [answer["ends"] for answer in answers]
        seconds = (max(end[-1] for end in ends) - max(end[0] for end in ends)) / count
        return {"seconds": seconds, "cpu_s": cpu / (count + 1), "loss": answers[0]["loss"], "statistics": answers[0]["statistics"]}

    def memory(self, count):
        sampler = Sampler(self.pids)
        sampler.start()
        self.ask(f"steps {count}")
        peaks = sampler.stop()
        base = self.base["anonymous"] + self.base["shared"]
        return {**{kind: peaks[kind] - self.base[kind] for kind in KINDS}, "sum": peaks["sum"] - base, "base": base}

    def reduce(self, byte_count, count):
        answers = self.ask(f"reduce {byte_count} {count}")
        return {name: (max(answer[name][1] for answer in answers) - max(answer[name][0] for answer in answers)) / count
                for name in ("zinf", "gloo")}

    def restart(self, _):
        killed = time.clock_gettime(time.CLOCK_MONOTONIC)
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        started = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.start_ranks()
        answers = self.hear()
        imports = max(answer["imported"] for answer in answers) - started
        return {"seconds": max(answer["stepped"] for answer in answers) - killed - imports, "imports": imports}

    def begin(self):
        answers = self.hear()
        skips = [answer["skip"] for answer in answers if "skip" in answer]
        if skips:
            say(skip=skips[0])
            return False
        self.base = dict.fromkeys(KINDS, 0)
        for answer in answers:
            self.base = add(self.base, answer["base"])
        say(ready=answers[0]["ready"])
        return True

    def close(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait(60)


def main():
    name, model, tokens, ranks, directory, build = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    side = Side(name, model, tokens, int(ranks), directory, os.path.abspath(build))
    try:
        if side.begin():
            for line in sys.stdin:
                what, *numbers = line.split()
                orders = {"steps": side.steps, "memory": side.memory, "restart": side.restart, "reduce": side.reduce}
                say(**orders[what](*map(int, numbers)))
    finally:
        side.close()


if __name__ == "__main__":
    main()
