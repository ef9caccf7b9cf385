from __future__ import annotations

from pathlib import Path

import pytest
import torch

from service.engine import device
from service.engine.device import DeviceError, available_cpus, choose_device, choose_dtype

CPU = torch.device("cpu")


def test_auto_takes_the_cpu_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert choose_device("auto") == CPU


def test_auto_takes_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto").type == "mps"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("auto") == torch.device("cuda", 0)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    for name in ("auto", "cuda"):
        assert [choose_device(name, worker=number).index for number in range(5)] == [0, 1, 0, 1, 0]
    assert choose_device("cuda:0", worker=1) == torch.device("cuda", 0)
    with pytest.raises(DeviceError, match="cuda:2 cannot be had, this process sees 2 CUDA devices"):
        choose_device("cuda:2")


@pytest.mark.parametrize("name", ["cuda", "cuda:3", "mps", "tpu", "meta", ""])
def test_a_device_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="^device: "):
        choose_device(name)


@pytest.mark.parametrize(
    ("name", "capability", "dtype"),
    [
        ("auto", (9, 0), torch.bfloat16),
        ("auto", (8, 0), torch.bfloat16),
        ("auto", (7, 5), torch.float16),
        ("float32", (7, 5), torch.float32),
        ("float16", (9, 0), torch.float16),
    ],
)
def test_the_dtype_of_a_gpu_follows_what_it_computes(
    monkeypatch: pytest.MonkeyPatch, name: str, capability: tuple[int, int], dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert choose_dtype(name, device=torch.device("cuda", 0)) == dtype


def test_a_dtype_that_would_be_emulated_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(DeviceError, match="^dtype: bfloat16 would be emulated on cuda:0"):
        choose_dtype("bfloat16", device=torch.device("cuda", 0))
    with pytest.raises(DeviceError, match="^dtype: 'double' is not auto, float32"):
        choose_dtype("double", device=CPU)


@pytest.mark.parametrize(
    ("capabilities", "best"),
    [
        ({"avx512_bf16": True, "avx512_fp16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_fp16": True, "avx512_bf16": False}, torch.float32),
        ({"avx2": True}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_a_cpu_computes_in_bfloat16_where_it_has_the_instructions(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], best: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert choose_dtype("auto", device=CPU) == best
    assert choose_dtype("float32", device=CPU) == torch.float32
    if best == torch.float32:
        with pytest.raises(DeviceError, match="^dtype: bfloat16 would be emulated on cpu"):
            choose_dtype("bfloat16", device=CPU)


def test_other_devices_take_what_they_have() -> None:
    assert choose_dtype("auto", device=torch.device("mps")) == torch.float32
    with pytest.raises(DeviceError, match="emulated on mps"):
        choose_dtype("bfloat16", device=torch.device("mps"))


@pytest.mark.parametrize(
    ("cpu_max", "cpus"), [("100000 100000", 1), ("150000 100000", 2), ("max 100000", 7), ("5000 100000", 1)]
)
def test_threads_follow_the_quota_of_the_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpu_max: str, cpus: int
) -> None:
    (tmp_path / "cpu.max").write_text(cpu_max + "\n")
    monkeypatch.setattr(device, "CGROUP_V2_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(7)))
    assert available_cpus() == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("300000", 3), ("-1", 7), ("900000", 7)])
def test_threads_follow_the_quota_of_an_older_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, cpus: int
) -> None:
    (tmp_path / "quota").write_text(quota + "\n")
    (tmp_path / "period").write_text("100000\n")
    monkeypatch.setattr(device, "CGROUP_V2_QUOTA", tmp_path / "absent")
    monkeypatch.setattr(device, "CGROUP_V1_QUOTA", tmp_path / "quota")
    monkeypatch.setattr(device, "CGROUP_V1_PERIOD", tmp_path / "period")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(7)))
    assert available_cpus() == cpus


def test_without_a_quota_all_cpus_of_the_process_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device, "CGROUP_V2_QUOTA", tmp_path / "absent")
    monkeypatch.setattr(device, "CGROUP_V1_QUOTA", tmp_path / "absent")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(7)))
    assert available_cpus() == 7
