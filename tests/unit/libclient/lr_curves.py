#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Curves of learning rates and loss scales, for test_lr.c and test_scaler.c to compare with.

A line of the input is a kind and its options, "cosine lr=0x1p-4 warmup_count=3 ... count=50":
integers are decimal, what has a point or an x is a float in hexadecimal. Each gives a line of
count values as hexadecimal floats (OneCycle with momentum: value, beta1, value, ...).

The formulas below are written anew from the tables of docs/ARITHMETIC.md, with nothing but math.
--originals takes the classes of transformers (5.23 was compared) and DeepSpeed (0.19.6) instead,
and tells so; other releases have other values. The plateau is torch's own class where torch is.
"""
import math
import struct
import sys


def number(text):
    return float.fromhex(text) if "x" in text or "n" in text else int(text)


def cosine(cycles, p):
    return 0.5 * (1.0 + math.cos(math.pi * cycles * 2.0 * p))


def lifted(o, x):
    return max(0.0, x * (1.0 - o["min_ratio"]) + o["min_ratio"])


def transformers_factor(kind, o, t):
    """What lr is multiplied with after t updates."""
    w, n, c = o["warmup_count"], o["total_count"], o["cycle_count"]
    if kind == "constant":
        return 1.0
    if kind == "cosine_warmup_with_min_lr":
        if t < w:
            r = o["warmup_ratio"]
            return (t + 1) / w if r < 0 else r + ((1 - r) * t) / max(1, w - 1)
        return lifted(o, cosine(c, (t - w + 1) / max(1, n - w)))
    if kind == "warmup_stable_decay":
        shapes_up = {1: lambda p: p, 2: lambda p: 0.5 * (1 - math.cos(math.pi * p)),
                     3: lambda p: 1 - math.sqrt(1 - p)}
        shapes_down = {1: lambda p: 1 - p, 2: lambda p: cosine(c, p), 3: lambda p: 1 - math.sqrt(p)}
        if t < w:
            return lifted(o, shapes_up[o["warmup_shape"]](t / w))
        if t < w + o["stable_count"]:
            return 1.0
        if t < w + o["stable_count"] + o["decay_count"]:
            return lifted(o, shapes_down[o["decay_shape"]]((t - w - o["stable_count"])
                                                           / o["decay_count"]))
        return o["min_ratio"]
    if t < w:
        return t / w
    p = (t - w) / max(1, n - w)
    if kind == "constant_with_warmup":
        return 1.0
    if kind == "linear":
        return max(0.0, (n - t) / max(1, n - w))
    if kind == "cosine":
        return max(0.0, cosine(c, p))
    if kind == "cosine_with_restarts":
        return 0.0 if p >= 1 else max(0.0, 0.5 * (1 + math.cos(math.pi * ((c * p) % 1.0))))
    if kind == "polynomial":
        if t > n:
            return o["lr_end"] / o["lr"]
        return ((o["lr"] - o["lr_end"]) * (1 - p) ** o["power"] + o["lr_end"]) / o["lr"]
    if kind == "inverse_sqrt":
        s = o["timescale"] or w or 10000
        return 1.0 / math.sqrt((t + (s - w)) / s)
    assert kind == "cosine_with_min_lr", kind
    return lifted(o, cosine(c, p))


def cycle_scale(o, t):
    a = float(o["first_count"])
    b = float(o["second_count"] or a)
    rising, falling = o["first_stairs"], o["second_stairs"]
    if falling < 0:
        falling = rising
    x = 1.0 + t / (a + b)
    x -= math.floor(x)
    ratio = a / (a + b)
    stairs = rising if x <= ratio else falling
    if not stairs:
        return x / ratio if x <= ratio else (x - 1) / (ratio - 1)
    place = t % (a + b)
    step = place * stairs / a if place <= a else (a + b - place) * stairs / b
    return math.floor(step) / stairs


def one_cycle(o, t):
    low, high = o["min_lr"], o["max_lr"]
    calm, strong = o["min_momentum"], o["max_momentum"]
    total = float(o["first_count"]) + float(o["second_count"] or o["first_count"])
    if t == 0:
        return low, calm
    if t - 1 < total:
        s = cycle_scale(o, t)
        return low + (high - low) * s, strong - (strong - calm) * s
    if o["decay_step_count"] == 0:
        return low, strong
    k = (t - 1 - total + 1) / o["decay_step_count"]
    return (low / (1 + o["decay_lr_rate"] * k) if o["decay_lr_rate"] else low,
            strong * (1 + o["decay_momentum_rate"] * k) if o["decay_momentum_rate"] else strong)


def deepspeed(kind, o, t):
    """(lr, beta1) after t updates."""
    if kind == "OneCycle":
        return one_cycle(o, t)
    if kind == "LRRangeTest":
        x = t / o["step_count"]
        return o["min_lr"] * (1 + o["step_rate"] * (math.floor(x) if o["is_staircase"] else x)), 0
    n, warm, i = o["total_count"], max(2, o["warmup_count"]), t - 1
    if t == 0:
        return (0.0 if kind == "WarmupCosineLR" else o["min_lr"]), 0
    if i < warm:
        g = i / warm if o["warmup_shape"] == 1 else (1.0 / math.log(warm)) * math.log(i + 1)
    elif kind == "WarmupLR":
        g = 1.0
    elif kind == "WarmupDecayLR":
        g = max(0.0, (n - i) / max(1, n - warm))
    if kind != "WarmupCosineLR":
        high = o["lr"] if kind == "WarmupLR" and o["max_lr"] < 0 else o["max_lr"]
        return o["min_lr"] + (high - o["min_lr"]) * g, 0
    if i < warm:
        return o["lr"] * (o["warmup_ratio"] + g * (1 - o["warmup_ratio"])), 0
    q = min(1.0, (i - warm + 1) / max(1, n - warm))
    low = o["min_ratio"]
    return o["lr"] * max(0.0, low + (1 - low) * ((1 + math.cos(math.pi * q)) / 2)), 0


def curve(kind, o):
    values = []
    for t in range(o["count"]):
        if kind[0].isupper():
            lr, beta1 = deepspeed(kind, o, t)
            values.append(lr)
            if kind == "OneCycle" and o["cycles_momentum"]:
                values.append(beta1)
        else:
            values.append(o["lr"] * transformers_factor(kind, o, t))
    return values


# ---- the originals themselves ------------------------------------------------------------------

def original_transformers(kind, o, optimizer):
    from transformers import optimization as hf
    both = {"num_warmup_steps": o["warmup_count"], "num_training_steps": o["total_count"]}
    shapes = {1: "linear", 2: "cosine", 3: "1-sqrt"}
    if kind == "constant":
        return hf.get_constant_schedule(optimizer)
    if kind == "constant_with_warmup":
        return hf.get_constant_schedule_with_warmup(optimizer, o["warmup_count"])
    if kind == "linear":
        return hf.get_linear_schedule_with_warmup(optimizer, **both)
    if kind == "cosine":
        return hf.get_cosine_schedule_with_warmup(optimizer, **both, num_cycles=o["cycle_count"])
    if kind == "cosine_with_restarts":
        return hf.get_cosine_with_hard_restarts_schedule_with_warmup(
            optimizer, **both, num_cycles=o["cycle_count"])
    if kind == "polynomial":
        return hf.get_polynomial_decay_schedule_with_warmup(
            optimizer, **both, lr_end=o["lr_end"], power=o["power"])
    if kind == "inverse_sqrt":
        return hf.get_inverse_sqrt_schedule(optimizer, o["warmup_count"],
                                            timescale=o["timescale"] or None)
    if kind == "cosine_with_min_lr":
        return hf.get_cosine_with_min_lr_schedule_with_warmup(
            optimizer, **both, num_cycles=o["cycle_count"], min_lr_rate=o["min_ratio"])
    if kind == "cosine_warmup_with_min_lr":
        return hf.get_cosine_with_min_lr_schedule_with_warmup_lr_rate(
            optimizer, **both, num_cycles=o["cycle_count"], min_lr_rate=o["min_ratio"],
            warmup_lr_rate=None if o["warmup_ratio"] < 0 else o["warmup_ratio"])
    return hf.get_wsd_schedule(
        optimizer, num_warmup_steps=o["warmup_count"], num_stable_steps=o["stable_count"],
        num_decay_steps=o["decay_count"], warmup_type=shapes[o["warmup_shape"]],
        decay_type=shapes[o["decay_shape"]], min_lr_ratio=o["min_ratio"],
        num_cycles=o["cycle_count"])


def original_deepspeed(kind, o, optimizer):
    from deepspeed.runtime import lr_schedules as ds
    if kind == "LRRangeTest":
        return ds.LRRangeTest(optimizer, o["min_lr"], o["step_count"], o["step_rate"],
                              bool(o["is_staircase"]))
    if kind == "OneCycle":
        return ds.OneCycle(
            optimizer, o["min_lr"], o["max_lr"], o["decay_lr_rate"], o["first_count"],
            o["second_count"] or None, o["first_stairs"],
            None if o["second_stairs"] < 0 else o["second_stairs"], o["decay_step_count"],
            bool(o["cycles_momentum"]), o["min_momentum"], o["max_momentum"],
            o["decay_momentum_rate"])
    shape = {1: "linear", 4: "log"}[o["warmup_shape"]]
    high = None if kind == "WarmupLR" and o["max_lr"] < 0 else o["max_lr"]
    if kind == "WarmupLR":
        return ds.WarmupLR(optimizer, o["min_lr"], high, o["warmup_count"], shape)
    if kind == "WarmupDecayLR":
        return ds.WarmupDecayLR(optimizer, o["total_count"], o["min_lr"], high, o["warmup_count"],
                                shape)
    return ds.WarmupCosineLR(optimizer, o["total_count"], o["warmup_ratio"], o["warmup_count"],
                             o["min_ratio"], shape)


def original_curve(kind, o):
    import torch
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([weight], lr=o["lr"])
    schedule = (original_deepspeed if kind[0].isupper() else original_transformers)(
        kind, o, optimizer)
    values = []
    for _ in range(o["count"]):
        values.append(float(optimizer.param_groups[0]["lr"]))
        if kind == "OneCycle" and o["cycles_momentum"]:
            values.append(optimizer.param_groups[0]["betas"][0])
            assert optimizer.param_groups[0]["betas"][1] == 0.99
        optimizer.step()
        schedule.step()
    return values


# ---- the plateau: metrics=a,b,c -----------------------------------------------------------------

def plateau(o, metrics):
    """Torch's class, or its rule again."""
    try:
        import torch
    except ImportError:
        return plateau_rule(o, metrics)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=o["lr"])
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max" if o["is_max"] else "min", factor=o["factor"],
        patience=o["patience"], threshold=o["threshold"],
        threshold_mode="abs" if o["is_absolute"] else "rel", cooldown=o["cooldown"],
        min_lr=o["min_lr"], eps=o["eps"])
    values = []
    for metric in metrics:
        schedule.step(metric)
        values.append(optimizer.param_groups[0]["lr"])
    return values


def plateau_rule(o, metrics):
    lr, bad, cool = o["lr"], 0, 0
    best = -math.inf if o["is_max"] else math.inf
    values = []
    for metric in metrics:
        edge = o["threshold"] if o["is_max"] else -o["threshold"]
        bound = best + edge if o["is_absolute"] else best * (1 + edge)
        if metric > bound if o["is_max"] else metric < bound:
            best, bad = metric, 0
        else:
            bad += 1
        if cool > 0:
            cool, bad = cool - 1, 0
        if bad > o["patience"]:
            lower = max(lr * o["factor"], o["min_lr"])
            lr = lower if lr - lower > o["eps"] else lr
            cool, bad = o["cooldown"], 0
        values.append(lr)
    return values


# ---- loss scales: overflows=0110, the scale after each step, -1 where a run ends ------------------

def f32(value):
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.inf


def divides(scale):
    """Gradients are multiplied by its inverse, an f32."""
    return scale > 0 and 0 < f32(1 / scale) < math.inf


def scales(kind, o, overflows):
    """Not a machine: each scale is told from the steps before it."""
    scale = f32(o["init"]) if kind == "torch" else o["init"]
    if kind == "apex":
        scale = min(scale, o["max"])
    left, last, since, values = o["hysteresis"], -1, 0, []
    for step, is_overflow in enumerate(overflows):
        former = scale
        if is_overflow and kind == "deepspeed":
            if 1 in (o["hysteresis"], left):
                if scale == o["min"]:
                    return values + [-1.0]
                scale = max(scale / 2, o["min"])
            else:
                left -= 1
            last = step
        elif is_overflow:
            since = 0
            if kind == "torch":
                scale = f32(scale * o["backoff"])
            elif kind == "apex":
                scale = max(o["min"], scale / 2) if o["min"] else scale / 2
        elif kind == "deepspeed":
            grows = step - last > 1 and (step - last - 1) % o["window"] == 0
            left = o["hysteresis"] if grows or o["is_consecutive"] else left
            scale = scale * 2 if grows else scale
        else:
            since += 1
            if since == o["window"] and kind in ("torch", "apex"):
                scale = f32(scale * o["growth"]) if kind == "torch" else min(o["max"], scale * 2)
                since = 0
        if not divides(scale):
            if is_overflow:
                return values + [-1.0]
            scale = former
        values.append(scale)
    return values


def main():
    uses_originals = "--originals" in sys.argv[1:]
    if uses_originals:
        print("lr_curves.py: transformers' and DeepSpeed's own classes", file=sys.stderr)
    for line in sys.stdin:
        kind, *words = line.split()
        o = dict(word.split("=") for word in words)
        metrics = [float.fromhex(m) for m in o.pop("metrics", "").split(",") if m]
        overflows = [c == "1" for c in o.pop("overflows", "")]
        o = {key: number(value) for key, value in o.items()}
        if kind == "plateau":
            values = plateau(o, metrics)
        elif kind in ("static", "deepspeed", "torch", "apex"):
            values = scales(kind, o, overflows)
        else:
            values = (original_curve if uses_originals else curve)(kind, o)
        print(" ".join(float(value).hex() for value in values))


if __name__ == "__main__":
    main()
