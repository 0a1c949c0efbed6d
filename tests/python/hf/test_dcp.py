# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: D205
"""Goal: zinf.checkpoint reads what torch's DCP wrote and writes what it reads, unit by unit.
Method: stock models and FSDP2 save and load the same checkpoints; losses of the next steps compare.
"""

from __future__ import annotations

import gc
import os
import pickle
import threading
from pathlib import Path
from typing import Any, Callable

import models
import pytest
import torch
import torch.distributed.checkpoint as dcp
import zinf
import zinf.checkpoint
from conftest import Ranks
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from zinf import admin
from zinf.module import moments

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def prepared(daemon: str, job: str, seed: int = 1, make: Any = None, **settings: Any) -> Any:
    model = models.gpt2(seed)
    kind = make or (lambda items: torch.optim.AdamW(items, lr=1e-3))
    places = {"offload_param": "nvme", "offload_optimizer": "nvme"}
    return zinf.prepare(
        model,
        kind(model.parameters()),
        socket_path=daemon,
        job=job,
        rank=0,
        world_size=1,
        **{**places, **settings},
    )


def go_on(model: Any, optimizer: Any, count: int = 3, first: int = 0) -> list[float]:
    data = models.Text(100)
    losses = []
    for step in range(first, first + count):
        rows = torch.stack([data[2 * step + row]["input_ids"] for row in range(2)])
        loss = model(input_ids=rows, labels=rows).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.fixture
def closing() -> Any:
    """Return a function that deletes the job of a model after the test."""
    opened: list[Any] = []

    def keep(pair: Any) -> Any:
        opened.append(pair[0])
        return pair

    yield keep
    for model in opened:
        engine: Any = zinf.engine_of(model)
        engine.discard()
        engine.close(delete_job=True)


@pytest.mark.parametrize("case", [(2, "adamw", "fsdp2"), (1, "sgd", "fsdp2"), (2, "sgd", "ddp")])
def test_checkpoints_pass_between_torch_and_zinf(
    ranks: Callable[..., Ranks], tmp_path: Path, daemon: str, case: tuple[int, str, str]
) -> None:
    count, optimizer, wrapper = case
    job = f"dcp-{count}-{wrapper}"
    spec = {"directory": str(tmp_path), "optimizer": optimizer, "wrapper": wrapper, "job": job}
    done = ranks([spec], count, program="dcp_worker.py")
    assert done.code == 0, done.output
    found = done.results
    assert found["zinf reads"] == pytest.approx(found["stock goes on"], rel=1e-5)
    assert found["stock reads"] == pytest.approx(found["zinf goes on"], rel=1e-5)
    # The same bits: float32 has no other master, and the snapshot has all.
    assert found["zinf reads its own"] == found["zinf goes on"]
    assert found["snapshot"] == found["zinf goes on"]
    assert found["async"] == found["zinf goes on"]
    assert found["lr"] == 1e-3
    # A file for each unit of each rank, and for each kind of a unit's state.
    written = [name for name in found["files"] if name.endswith(".distcp")]
    assert {name.split("_")[2] for name in written} == {str(rank) for rank in range(count)}
    assert len(written) > 6
    assert "cannot be read, and the model has a part of its values" in found["damaged"]
    for name in ("reads", "again", "snap", "async"):
        admin.delete_job(f"{job}-{name}", socket_path=daemon)


def test_one_unit_is_present_at_a_time(daemon: str, tmp_path: Path, closing: Any) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-units"))
    engine: Any = zinf.engine_of(model)
    go_on(model, optimizer)
    engine.last_stats()
    most = 0
    bring = engine.bring

    def count(unit: Any) -> None:
        nonlocal most
        bring(unit)
        most = max(most, sum(item.holds > 0 or item is unit for item in engine.units))

    engine.bring = count
    state = zinf.checkpoint.state_dict(model, optimizer)
    entry = state["optim"]["state"]["transformer.wte.weight"]
    assert [type(value).__name__ for value in entry.values()] == ["Tensor", *["StateTensor"] * 2]
    dcp.save(state, storage_writer=zinf.checkpoint.Writer(tmp_path))
    assert most == 1
    # Tied names are both there, as torch saves them, and torch merges the files to one.
    dcp_to_torch_save(str(tmp_path), str(tmp_path / "one.pt"))
    merged = torch.load(tmp_path / "one.pt", weights_only=False)
    own = model.state_dict()
    assert merged["model"].keys() == own.keys()
    assert all(torch.equal(merged["model"][name], own[name]) for name in own)
    moments = optimizer.state_dict(tensors=True)["state"][0]
    saved = merged["optim"]["state"]["transformer.wte.weight"]
    assert saved["step"] == moments["step"] == 3
    assert torch.equal(saved["exp_avg_sq"], moments["exp_avg_sq"])


def test_parameters_alone_keep_the_optimizer_state(
    daemon: str, tmp_path: Path, closing: Any
) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-alone"))
    go_on(model, optimizer)
    other = models.gpt2(7)
    dcp.save({"model": other.state_dict()}, checkpoint_id=tmp_path)
    before = optimizer.state_dict(tensors=True)["state"]
    reader = zinf.checkpoint.Reader(tmp_path)
    dcp.load(zinf.checkpoint.state_dict(model), storage_reader=reader)
    after = optimizer.state_dict(tensors=True)["state"]
    for name, value in other.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    for index, entry in before.items():
        for name, value in entry.items():
            assert torch.equal(value, after[index][name])


def test_bfloat16_takes_float32(daemon: str, tmp_path: Path, closing: Any) -> None:
    other = models.gpt2(7)
    dcp.save({"model": other.state_dict()}, checkpoint_id=tmp_path)
    model, _ = closing(prepared(daemon, "dcp-bf16", param_dtype="bfloat16"))
    reader = zinf.checkpoint.Reader(tmp_path)
    dcp.load(zinf.checkpoint.state_dict(model), storage_reader=reader)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name].to(torch.bfloat16))


def masters_of(model: Any) -> dict[str, Any]:
    engine: Any = zinf.engine_of(model)
    engine.last_stats()
    slots = [slot for unit in engine.units for slot in unit.slots]
    return {s.name: moments.read_kind(engine, s, zinf.StateKind.MASTER) for s in slots}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_sixteen_bits_go_on_with_the_same_bits(
    daemon: str, tmp_path: Path, closing: Any, dtype: str, kind: str
) -> None:
    make = {"adamw": None, "sgd": lambda items: torch.optim.SGD(items, lr=1e-2)}[kind]
    name = f"dcp-{dtype}-{kind}"
    settings = {"param_dtype": dtype, "make": make}
    model, optimizer = closing(prepared(daemon, name, **settings))
    go_on(model, optimizer)
    state = zinf.checkpoint.state_dict(model, optimizer)
    assert state["model"]["transformer.wte.weight"].dtype == torch.float32
    alone = zinf.checkpoint.state_dict(model)["model"]
    assert alone["transformer.wte.weight"].dtype == getattr(torch, dtype)
    dcp.save(state, storage_writer=zinf.checkpoint.Writer(tmp_path))
    masters = masters_of(model)
    wanted = go_on(model, optimizer, first=3)
    other, again = closing(prepared(daemon, f"{name}-2", seed=5, **settings))
    go_on(other, again, count=1)
    dcp.load(
        zinf.checkpoint.state_dict(other, again),
        storage_reader=zinf.checkpoint.Reader(tmp_path),
    )
    assert all(torch.equal(masters[n], value) for n, value in masters_of(other).items())
    assert go_on(other, again, first=3) == wanted
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters()))
    # torch finds the masters under the names of the parameters.
    plain = models.gpt2(7)
    dcp.load({"model": plain.state_dict()}, checkpoint_id=tmp_path)
    assert all(torch.equal(masters[n], value) for n, value in plain.named_parameters())


def test_checkpoints_without_masters_are_read(daemon: str, tmp_path: Path, closing: Any) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-older", param_dtype="bfloat16"))
    go_on(model, optimizer)
    state = zinf.checkpoint.state_dict(model, optimizer)
    state["model"] = zinf.checkpoint.state_dict(model)["model"]  # as it was before
    dcp.save(state, storage_writer=zinf.checkpoint.Writer(tmp_path))
    values = {name: value.clone() for name, value in model.state_dict().items()}
    before = optimizer.state_dict(tensors=True)["state"]
    other, again = closing(prepared(daemon, "dcp-older-2", seed=5, param_dtype="bfloat16"))
    dcp.load(
        zinf.checkpoint.state_dict(other, again),
        storage_reader=zinf.checkpoint.Reader(tmp_path),
    )
    for name, value in other.state_dict().items():
        assert torch.equal(value, values[name]), name
    assert all(torch.equal(values[n].float(), v) for n, v in masters_of(other).items())
    after = again.state_dict(tensors=True)["state"]
    assert torch.equal(before[0]["exp_avg"], after[0]["exp_avg"])
    go_on(other, again, count=1)


def test_a_damaged_master_is_told(daemon: str, tmp_path: Path, closing: Any) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-torn", param_dtype="bfloat16"))
    state = zinf.checkpoint.state_dict(model, optimizer)
    dcp.save(state, storage_writer=zinf.checkpoint.Writer(tmp_path))
    for file in tmp_path.glob("__0_[1-9]*.distcp"):  # The first one has what is not zinf's.
        os.truncate(file, 10)
    with pytest.raises(BaseException, match="the model has a part of its values"):
        dcp.load(state, storage_reader=zinf.checkpoint.Reader(tmp_path))
    assert all(value.isfinite().all() for value in masters_of(model).values())


# ---- dcp.async_save() ----


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Hold exports of the daemon until the event is set: training goes on first."""
    event = threading.Event()
    run = admin.run

    def hold(*words: str, **more: Any) -> Any:
        if words[0] == "export":
            assert event.wait(60)
        return run(*words, **more)

    monkeypatch.setattr(admin, "run", hold)
    return event


@pytest.mark.parametrize("case", [("float32", "none"), ("float32", "nvme"), ("bfloat16", "nvme")])
def test_async_save_has_the_step_at_which_it_began(
    daemon: str, tmp_path: Path, closing: Any, held: threading.Event, case: tuple[str, str]
) -> None:
    dtype, place = case
    name = f"dcp-async-{dtype}-{place}"
    places = {"offload_param": place, "offload_optimizer": place, "param_dtype": dtype}
    model, optimizer = closing(prepared(daemon, name, **places))
    go_on(model, optimizer)
    state = zinf.checkpoint.state_dict(model, optimizer)
    state["more"] = {"count": torch.ones(2), "epoch": 3}
    future = dcp.async_save(state, storage_writer=zinf.checkpoint.Writer(tmp_path))
    state["more"]["count"].zero_()
    wanted = go_on(model, optimizer, first=3)
    held.set()
    future.result()
    assert not [entry for entry in os.listdir(tmp_path) if entry.startswith(".zinf")]
    assert admin.snapshots(name, socket_path=daemon) == []
    other, again = closing(prepared(daemon, f"{name}-2", seed=5, param_dtype=dtype))
    found = zinf.checkpoint.state_dict(other, again)
    found["more"] = {"count": torch.zeros(2), "epoch": 0}
    dcp.load(found, storage_reader=zinf.checkpoint.Reader(tmp_path))
    assert go_on(other, again, first=3) == wanted
    assert found["more"]["count"].tolist() == [1, 1]
    assert found["more"]["epoch"] == 3


def test_async_save_keeps_a_snapshot_on_request(
    daemon: str, tmp_path: Path, closing: Any, held: threading.Event
) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-async-keep"))
    go_on(model, optimizer)
    writer = zinf.checkpoint.Writer(tmp_path, snapshot_of=model)
    future = dcp.async_save(zinf.checkpoint.state_dict(model), storage_writer=writer)
    with pytest.raises(zinf.checkpoint.CheckpointError, match=r"has no zinf\.json"):
        zinf.checkpoint.snapshot_in(tmp_path)  # not before its files are there
    wanted = go_on(model, optimizer, first=3)
    held.set()
    future.result()
    snapshot = zinf.checkpoint.snapshot_in(tmp_path)
    pair = closing(prepared(daemon, "dcp-async-keep-2", seed=5, snapshot=snapshot))
    assert go_on(*pair, first=3) == wanted
    # The same writer once more, in the script's thread: the former snapshot goes.
    dcp.save(zinf.checkpoint.state_dict(model), storage_writer=writer)
    (left,) = admin.snapshots("dcp-async-keep", socket_path=daemon)
    assert zinf.checkpoint.snapshot_in(tmp_path) == f"dcp-async-keep/{left['name']}" != snapshot


def test_async_save_that_fails_leaves_nothing(
    daemon: str, tmp_path: Path, closing: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-async-fails"))
    go_on(model, optimizer, count=1)
    run = admin.run

    def fail(*words: str, **more: Any) -> Any:
        run(*words, **more)
        if words[0] == "export":
            raise zinf.NoSpace("the disk is full")

    monkeypatch.setattr(admin, "run", fail)
    state = zinf.checkpoint.state_dict(model, optimizer)
    future = dcp.async_save(state, storage_writer=zinf.checkpoint.Writer(tmp_path))
    with pytest.raises(BaseException, match="the disk is full"):
        future.result()
    monkeypatch.undo()
    del future
    gc.collect()
    assert os.listdir(tmp_path) == []
    assert admin.snapshots("dcp-async-fails", socket_path=daemon) == []
    go_on(model, optimizer, count=1, first=1)


def test_async_save_refuses_what_it_cannot_do(
    daemon: str, tmp_path: Path, closing: Any, held: threading.Event
) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-async-1"))
    other, _ = closing(prepared(daemon, "dcp-async-2"))
    state = zinf.checkpoint.state_dict(model, optimizer)
    writer = zinf.checkpoint.Writer(tmp_path)
    held.set()
    both = {"one": state, "two": zinf.checkpoint.state_dict(other)}
    with pytest.raises(zinf.Unsupported, match="2 models in zinf"):
        dcp.async_save(both, storage_writer=writer)
    with pytest.raises(zinf.Unsupported, match=r"storage_writer=zinf\.checkpoint\.Writer"):
        dcp.async_save({"optim": state["optim"]}, checkpoint_id=tmp_path)
    future = dcp.async_save(state, storage_writer=writer, use_collectives=False)
    with pytest.raises(BaseException, match="Leave use_collectives out"):
        future.result()
    staged = writer.stage(state)
    with pytest.raises(zinf.Unsupported, match="PROCESS"):
        pickle.dumps(staged)
    assert staged["model"]["transformer.wte.weight"].shape == model.transformer.wte.weight.shape
    plain = {"values": torch.ones(2)}
    dcp.async_save(plain, storage_writer=zinf.checkpoint.Writer(tmp_path / "plain")).result()
    rows = models.Text(2)[0]["input_ids"][None]
    model(input_ids=rows, labels=rows).loss.backward()
    with pytest.raises(zinf.InvalidArgument, match="a checkpoint while a step is under way"):
        dcp.async_save(state, storage_writer=writer)
    optimizer.zero_grad()


def test_wrong_use_is_refused(daemon: str, tmp_path: Path, closing: Any) -> None:
    plain = models.gpt2()
    with pytest.raises(zinf.InvalidArgument, match="the model is not prepared"):
        zinf.checkpoint.state_dict(plain)
    with pytest.raises(zinf.InvalidArgument, match="snapshot_of: the model is not prepared"):
        zinf.checkpoint.Writer(tmp_path, snapshot_of=plain)
    with pytest.raises(zinf.checkpoint.CheckpointError, match=r"has no zinf\.json"):
        zinf.checkpoint.snapshot_in(tmp_path)
    model, optimizer = closing(prepared(daemon, "dcp-wrong"))
    with pytest.raises(zinf.InvalidArgument, match="SGD is not prepared"):
        zinf.checkpoint.state_dict(model, torch.optim.SGD(plain.parameters()))
    another, _ = closing(prepared(daemon, "dcp-wrong-2"))
    with pytest.raises(zinf.InvalidArgument, match="belongs to another model"):
        zinf.checkpoint.state_dict(another, optimizer)
    state = zinf.checkpoint.state_dict(model, optimizer)
    entry = state["optim"]["state"]["transformer.wte.weight"]["exp_avg"]
    assert entry.sum() == 0  # it is read
    with pytest.raises(zinf.Unsupported, match=r"mul_\(\) would write to optimizer state"):
        entry.mul_(2)
    data = models.Text(2)
    rows = data[0]["input_ids"][None]
    model(input_ids=rows, labels=rows).loss.backward()
    writer = zinf.checkpoint.Writer(tmp_path / "busy")
    with pytest.raises(BaseException, match="a checkpoint while a step is under way"):
        dcp.save(zinf.checkpoint.state_dict(model), storage_writer=writer)
    optimizer.zero_grad()
    dcp.save(state, storage_writer=zinf.checkpoint.Writer(tmp_path / "good"))
    model(input_ids=rows, labels=rows).loss.backward()
    with pytest.raises(BaseException, match="loading a checkpoint while a step is under way"):
        dcp.load(
            zinf.checkpoint.state_dict(model),
            storage_reader=zinf.checkpoint.Reader(tmp_path / "good"),
        )


def test_safetensors_of_a_whole_model(daemon: str, tmp_path: Path, closing: Any) -> None:
    model, optimizer = closing(prepared(daemon, "dcp-files"))
    go_on(model, optimizer)
    engine: Any = zinf.engine_of(model)
    files = zinf.checkpoint.save_model(model, tmp_path, engine.named_tensors())
    assert files == ["model.safetensors"]
    assert os.path.exists(tmp_path / files[0])
    another, _ = closing(prepared(daemon, "dcp-files-2", seed=5))
    zinf.checkpoint.load_model(another, tmp_path)
    for name, value in model.state_dict().items():
        assert torch.equal(another.state_dict()[name], value)
