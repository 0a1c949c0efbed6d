# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205, PT012, PT018, RUF043
"""Goal: weights.py writes what from_pretrained and safetensors read, and refuses damaged files.
Method: models from configurations; from_pretrained and the safetensors library are the judges.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
import transformers
from models import bert, gpt2, llama
from zinf import weights
from zinf.weights import CheckpointError, Entry, Reader, Writer


def same(a: torch.nn.Module, b: torch.nn.Module) -> None:
    ours, theirs = a.state_dict(), b.state_dict()
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize("make", [gpt2, llama, bert])
@pytest.mark.parametrize("size", ["5GB", "40KB"])
def test_from_pretrained_reads_what_was_written(make, size: str, tmp_path: Path) -> None:
    model = make()
    model.save_pretrained(tmp_path / "stock")
    model.config.save_pretrained(tmp_path / "zinf")
    files = weights.save_model(model, tmp_path / "zinf", max_shard_size=size)
    assert (len(files) > 1) == (size == "40KB")
    assert sorted(os.listdir(tmp_path / "zinf")) == sorted(
        [*files, "config.json"] + (["model.safetensors.index.json"] if len(files) > 1 else [])
    )
    same(model, type(model).from_pretrained(tmp_path / "zinf"))
    with Reader(tmp_path / "zinf") as ours, Reader(tmp_path / "stock") as stock:
        assert set(ours) == set(stock)


@pytest.mark.parametrize("tied", [False, True])
def test_a_tie_is_stored_once(tied: bool, tmp_path: Path) -> None:
    model = gpt2(tie_word_embeddings=tied)
    weights.save_model(model, tmp_path)
    names = set(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    assert ("lm_head.weight" in names) == (not tied)
    assert "transformer.wte.weight" in names


def test_tensors_come_in_any_order_and_under_any_name(tmp_path: Path) -> None:
    model = gpt2()
    named = list(weights.named_tensors(model))[::-1]
    assert any(name == "lm_head.weight" for name, _ in named)
    weights.save_model(model, tmp_path, iter(named))
    read = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert all(
        torch.equal(read[entry.name], model.state_dict()[entry.name])
        for entry in weights.model_entries(model)
    )


def test_all_types_keep_their_bits(tmp_path: Path) -> None:
    # Three booleans first: the elements after them must still be aligned.
    tensors = {"a": torch.tensor([True, False, True])}
    for code, dtype in weights._DTYPES.items():
        if dtype != torch.bool:
            tensors[code] = torch.arange(5).to(dtype)
    tensors["empty"] = torch.empty(0, 3)
    tensors["scalar"] = torch.tensor(1.5)
    entries = [Entry(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
    with Writer(tmp_path, entries) as writer:
        for name, tensor in tensors.items():
            writer.write(name, tensor)
    read = safetensors.torch.load_file(tmp_path / "model.safetensors")
    with Reader(tmp_path) as reader:
        for name, tensor in tensors.items():
            target = torch.empty_like(tensor)
            reader.read_into(name, target)
            for copy in (target, read[name]):
                assert copy.dtype == tensor.dtype
                assert copy.shape == tensor.shape
                assert torch.equal(copy.double(), tensor.double())


def test_the_reader_reads_what_safetensors_wrote(tmp_path: Path) -> None:
    model = llama()
    safetensors.torch.save_model(model, str(tmp_path / "model.safetensors"))
    other = llama(seed=2)
    with Reader(tmp_path / "model.safetensors") as reader:
        for name, tensor in weights.named_tensors(other):
            reader.read_into(name, tensor)
    same(model, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_reader_converts(dtype: torch.dtype, tmp_path: Path) -> None:
    value = torch.randn(700, 1000)  # more than one piece
    with Writer(tmp_path, [Entry("x", torch.float32, (700, 1000))]) as writer:
        writer.write("x", value)
    with Reader(tmp_path) as reader:
        target = torch.empty(700, 1000, dtype=dtype)
        reader.read_into("x", target)
        across = torch.empty(1000, 700, dtype=dtype).t()
        reader.read_into("x", across)
    assert torch.equal(target, value.to(dtype))
    assert torch.equal(across, target)


def test_a_new_save_replaces_an_old_one(tmp_path: Path) -> None:
    small, large = gpt2(), gpt2(seed=2)
    small.config.save_pretrained(tmp_path)
    for model, size in ((small, "40KB"), (large, "5GB"), (small, "30KB"), (large, "60KB")):
        weights.save_model(model, tmp_path, max_shard_size=size)
        same(model, transformers.GPT2LMHeadModel.from_pretrained(tmp_path))


def test_an_exception_leaves_the_old_save(tmp_path: Path) -> None:
    old = gpt2()
    old.config.save_pretrained(tmp_path)
    weights.save_model(old, tmp_path)
    before = sorted(os.listdir(tmp_path))
    new = gpt2(seed=2)
    with (
        pytest.raises(ZeroDivisionError),
        Writer(tmp_path, weights.model_entries(new)) as writer,
    ):
        writer.write("transformer.wte.weight", new.transformer.wte.weight)
        raise ZeroDivisionError
    with (
        pytest.raises(
            CheckpointError, match="27 tensors were not written: 'transformer.wpe.weight'"
        ),
        Writer(tmp_path, weights.model_entries(new)) as writer,
    ):
        writer.write("transformer.wte.weight", new.transformer.wte.weight)
    assert sorted(os.listdir(tmp_path)) == before
    same(old, transformers.GPT2LMHeadModel.from_pretrained(tmp_path))


def test_wrong_use_of_the_writer(tmp_path: Path) -> None:
    entry = Entry("x", torch.float32, (2,))
    with pytest.raises(ValueError, match="listed twice"):
        Writer(tmp_path, [entry, entry])
    with pytest.raises(ValueError, match="no type for torch.complex64"):
        Writer(tmp_path, [Entry("x", torch.complex64, (2,))])
    for size in ("5", "0B", "-1GB", "many GB", 0):
        with pytest.raises(ValueError, match="maximum shard size"):
            Writer(tmp_path, [entry], max_shard_size=size)
    writer = Writer(tmp_path, [entry])
    with pytest.raises(ValueError, match="not in the list"):
        writer.write("y", torch.zeros(2))
    with pytest.raises(ValueError, match=r"its entry says torch.float32 \(2,\)"):
        writer.write("x", torch.zeros(3))
    with pytest.raises(ValueError, match="its entry says torch.float32"):
        writer.write("x", torch.zeros(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="only CPU tensors"):
        writer.write("x", torch.zeros(2, device="meta"))
    writer.write("x", torch.zeros(2))
    with pytest.raises(ValueError, match="written already"):
        writer.write("x", torch.zeros(2))
    writer.abort()
    assert os.listdir(tmp_path) == []


def put(path: Path, header: object, data: bytes = b"\0" * 8) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def item(**changed: object) -> dict[str, object]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}}


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not JSON"),
        ({"x": 3}, "cannot be read"),
        (item(dtype="F31"), "cannot be read"),
        (item(shape=[[2]]), "cannot be read"),
        (item(shape=[-2]), "is placed at"),
        (item(shape=[3]), "is placed at"),
        (item(data_offsets=[8, 16]), "is placed at"),
        (item(data_offsets=[-8, 0]), "is placed at"),
        (item(data_offsets=[0]), "cannot be read"),
    ],
)
def test_damaged_headers_are_refused(header: object, text: str, tmp_path: Path) -> None:
    put(tmp_path / "model.safetensors", header)
    with pytest.raises(CheckpointError, match=text):
        Reader(tmp_path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file or directory"):
        Reader(tmp_path / "none")
    with pytest.raises(CheckpointError, match="has neither model.safetensors nor"):
        Reader(tmp_path)
    file, index = tmp_path / "model.safetensors", tmp_path / "model.safetensors.index.json"
    file.write_bytes(b"1234")
    with pytest.raises(CheckpointError, match="4 bytes are no safetensors file"):
        Reader(tmp_path)
    file.write_bytes((1 << 40).to_bytes(8, "little") + b"{}")
    with pytest.raises(CheckpointError, match="the header claims 1099511627776 bytes"):
        Reader(tmp_path)
    file.unlink()
    index.write_text("[]")
    with pytest.raises(CheckpointError, match="not an index"):
        Reader(tmp_path)
    index.write_text('{"weight_map": {"x": "../a"}}')
    with pytest.raises(CheckpointError, match="has a directory"):
        Reader(tmp_path)
    index.write_text('{"weight_map": {"x": "a", "y": "b"}}')
    put(tmp_path / "a", item())
    with pytest.raises(CheckpointError, match="b: No such file"):
        Reader(tmp_path)
    put(tmp_path / "b", item())
    with pytest.raises(CheckpointError, match="'x' is also in"):
        Reader(tmp_path)
    put(tmp_path / "b", {})
    with pytest.raises(CheckpointError, match="places 'y' in b"):
        Reader(tmp_path)
    put(tmp_path / "b", {"y": item()["x"]})
    with Reader(tmp_path) as reader:
        assert len(reader) == 2
        assert reader.entry("y").shape == (2,)
        with pytest.raises(CheckpointError, match="has no tensor 'z'"):
            reader.read_into("z", torch.zeros(2))
        with pytest.raises(CheckpointError, match=r"has shape \(2,\), but the model wants \(3,\)"):
            reader.read_into("x", torch.zeros(3))
        os.truncate(tmp_path / "b", 60)
        with pytest.raises(CheckpointError, match="the file ends"):
            reader.read_into("y", torch.zeros(2))


STREAM = """
import resource, sys, torch
from zinf.weights import Entry, Writer, Reader
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
tensor = torch.randn(4 << 20)
before = peak()
entries = [Entry(str(i), tensor.dtype, tuple(tensor.shape)) for i in range(12)]
with Writer(sys.argv[1], entries, max_shard_size="70MB") as w:
    for i in range(12):
        w.write(str(i), tensor)
with Reader(sys.argv[1]) as r:
    for name in r:
        r.read_into(name, tensor)
print(len(w.files), peak() - before)
"""


def test_192_mib_pass_through_a_few_mib(tmp_path: Path) -> None:
    out = subprocess.run(
        [sys.executable, "-c", STREAM, str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout
    files, grown = map(int, out.split())
    assert files == 3 and grown < 24, out
