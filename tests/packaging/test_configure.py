"""What CMake decides and says before anything is compiled, and that a build with CUDA needs no GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import ENV, ROOT, SITE_PACKAGES, run

TORCH_CUDA = torch.version.cuda or "none"


def configure(folder: Path, *arguments: str, env: dict[str, str] | None = None, ok: bool = True) -> str:
    arguments = (f"-DLibTorch_ROOT={SITE_PACKAGES / 'torch'}", "-GNinja", "-DPOSENC_TESTS=OFF", *arguments)
    return run("cmake", "-S", ROOT, "-B", folder, *arguments, env=env, ok=ok)


def fake_nvcc(folder: Path, release: str) -> Path:
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.99'\n")
    nvcc.chmod(0o755)
    return nvcc


def fake_torch(folder: Path, version: str) -> Path:
    """The files of a torch that configuring looks at, and nothing else."""
    header = folder / "include/torch/headeronly/version.h"
    header.parent.mkdir(parents=True)
    parts = zip(("MAJOR", "MINOR", "PATCH"), version.split("."))
    header.write_text("".join(f"#define TORCH_VERSION_{part} {number}\n" for part, number in parts))
    (folder / "include/torch/library.h").touch()
    (folder / "lib").mkdir()
    for name in ("torch", "torch_cpu", "c10"):
        (folder / f"lib/lib{name}.so").touch()
    return folder


def require_nvcc() -> None:
    if shutil.which("nvcc") is None or torch.version.cuda is None:
        reason = "no nvcc, or a torch without CUDA (POSENC_REQUIRE_NVCC=1 makes this a failure)"
        if os.environ.get("POSENC_REQUIRE_NVCC") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


def test_pkg03_cuda_on_without_a_toolkit_is_one_readable_error(tmp_path: Path, no_cuda_env: dict[str, str]) -> None:
    output = configure(tmp_path, "-DPOSENC_CUDA=ON", env=no_cuda_env, ok=False)
    assert output.count("CMake Error") == 1
    assert "posenc: POSENC_CUDA=ON must find a CUDA toolkit" in output
    assert f"but got nvcc none and torch {torch.__version__.split('+')[0]} with CUDA {TORCH_CUDA}" in output
    assert "-DPOSENC_CUDA=OFF" in output


def test_pkg03_cuda_auto_without_a_toolkit_is_one_line(tmp_path: Path, no_cuda_env: dict[str, str]) -> None:
    output = configure(tmp_path, env=no_cuda_env)
    assert len(re.findall("posenc: CPU only, since nvcc was not found", output)) == 1


def test_pkg04_other_cuda_major_names_both_versions_and_the_remedies(
    tmp_path: Path, no_cuda_env: dict[str, str]
) -> None:
    compiler = f"-DCMAKE_CUDA_COMPILER={fake_nvcc(tmp_path, '9.2')}"
    output = configure(tmp_path / "on", "-DPOSENC_CUDA=ON", compiler, env=no_cuda_env, ok=False)
    assert output.count("CMake Error") == 1
    assert "nvcc 9.2" in output
    assert f"with CUDA {TORCH_CUDA}" in output
    for remedy in ("toolkit and put its nvcc on PATH", "install a torch built for CUDA 9", "-DPOSENC_CUDA=OFF"):
        assert remedy in output
    assert "posenc: CPU only, since" in configure(tmp_path / "auto", compiler, env=no_cuda_env)


def test_missing_torch_is_one_readable_error(
    tmp_path: Path, no_cuda_env: dict[str, str], make_environment: Callable[[bool], Path]
) -> None:
    python = make_environment(False) / "bin/python"
    arguments = ("-DLibTorch_ROOT=", f"-DPython3_EXECUTABLE={python}")
    output = configure(tmp_path, *arguments, env=no_cuda_env, ok=False)
    assert output.count("CMake Error") == 1
    assert f"posenc: torch >= 2.11 must be installed, but {python} has none" in output
    assert 'pip install "torch>=2.11"' in output


def test_old_torch_is_one_readable_error(tmp_path: Path, no_cuda_env: dict[str, str]) -> None:
    root = fake_torch(tmp_path / "torch", "2.10.0")
    output = configure(tmp_path / "build", f"-DLibTorch_ROOT={root}", env=no_cuda_env, ok=False)
    assert output.count("CMake Error") == 1
    assert f"posenc: torch must be >= 2.11, but got 2.10.0 in {root}" in output


def test_pkg05_default_architectures_do_not_depend_on_a_gpu(tmp_path: Path) -> None:
    require_nvcc()
    configure(tmp_path, "-DPOSENC_CUDA=ON", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    kernels = [entry["command"] for entry in commands if entry["file"].endswith(".cu")]
    assert kernels
    for command in kernels:
        assert set(re.findall(r"sm_(\d+)", command)) == {"75", "80", "86", "89", "90", "100", "120"}
        assert re.findall(r"code=\[?compute_(\d+)", command) == ["120"]
        assert "--fmad=false" in command


def test_library_with_cuda_kernels_loads_without_a_gpu() -> None:
    require_nvcc()
    program = (
        "import torch, posenc; from posenc import _build_info as built; "
        "has = torch._C._dispatch_has_kernel_for_dispatch_key; "
        "print(built.CUDA_ARCHITECTURES, [has(f'posenc::{op}', 'CUDA') for op in ('encode', 'add')])"
    )
    env = {**ENV, "CUDA_VISIBLE_DEVICES": ""}
    output = run(sys.executable, "-c", program, env=env, cwd=Path("/"))
    for architecture in ("80", "90", "120"):
        assert architecture in output
    assert "[True, True]" in output
