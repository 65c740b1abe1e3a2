"""A C++ user's project (the folder consumer) built against the installed package."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import run, site_packages
from test_configure import fake_torch

CONSUMER = Path(__file__).parent / "consumer"
SAVE_MODEL = """
import sys, torch, posenc

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.ops.posenc.add(x)

model = Model()
torch.jit.script(model).save(sys.argv[1])
x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
print(*model(x).view(torch.int32).flatten().tolist(), sep="\\n")
"""


def configure(
    installed: Path, folder: Path, *arguments: str, env: dict[str, str] | None = None, ok: bool = True
) -> str:
    """Without Python: the prefix path names posenc and torch as their Python packages print them."""
    packages = site_packages(installed)
    prefixes = f"{packages / 'posenc'};{packages / 'torch/share/cmake'}"
    return run(
        "cmake", "-GNinja", "-S", CONSUMER, "-B", folder, f"-DCMAKE_PREFIX_PATH={prefixes}",
        "-DPython3_EXECUTABLE=/nonexistent", "-DCMAKE_BUILD_TYPE=Release", *arguments, env=env, ok=ok,
    )  # fmt: skip


@pytest.fixture(scope="session")
def consumer(installed: Path, no_cuda_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as on a machine without CUDA toolkit, with -Wl,--as-needed for every link."""
    folder = tmp_path_factory.mktemp("consumer")
    configure(installed, folder, env=no_cuda_env)
    run("cmake", "--build", folder, env=no_cuda_env)
    return folder


def test_tsc02_program_that_only_loads_a_model_keeps_the_operators(
    installed: Path, consumer: Path, tmp_path: Path
) -> None:
    script, model = tmp_path / "save_model.py", tmp_path / "model.pt"
    script.write_text(SAVE_MODEL)
    expected = run(installed / "bin/python", "-W", "ignore", script, model)
    assert run(consumer / "run_model", model, env={}) == expected


def test_tsc03_library_opened_at_run_time_registers_without_python(installed: Path, consumer: Path) -> None:
    library = site_packages(installed) / "posenc/lib/libposenc.so"
    assert "posenc::encode(" in run(consumer / "open_library", library, env={})


def test_pkg11_consumer_calls_the_installed_functions(consumer: Path) -> None:
    assert run(consumer / "call_functions", env={}).endswith(" 4 4\n")


def test_pkg11_consumer_may_also_find_torch_itself(installed: Path, tmp_path: Path) -> None:
    if torch.version.cuda and shutil.which("nvcc") is None:
        pytest.skip("find_package(Torch) needs the CUDA toolkit that this torch was built with")
    configure(installed, tmp_path, "-DWITH_TORCH_PACKAGE=ON")
    run("cmake", "--build", tmp_path, "--target", "call_functions")
    assert run(tmp_path / "call_functions", env={}).endswith(" 4 4\n")


def test_pkg02_other_cxx11_abi_stops_at_configure(installed: Path, no_cuda_env: dict[str, str], tmp_path: Path) -> None:
    flags = "-DCMAKE_CXX_FLAGS=-D_GLIBCXX_USE_CXX11_ABI=0"
    output = configure(installed, tmp_path, flags, env=no_cuda_env, ok=False)
    assert "posenc: _GLIBCXX_USE_CXX11_ABI must be 1" in output
    assert "but got 0" in output


def test_pkg01_consumer_with_another_torch_minor_stops_at_configure(
    installed: Path, no_cuda_env: dict[str, str], tmp_path: Path
) -> None:
    root = fake_torch(tmp_path / "torch", "2.99.0")
    output = configure(installed, tmp_path / "build", f"-DLibTorch_ROOT={root}", env=no_cuda_env, ok=False)
    assert f"but got 2.99.0 in {root}" in output
    assert ".".join(torch.__version__.split(".")[:2]) in output


def test_pkg01_consumer_without_torch_is_told_what_to_run(
    installed: Path, no_cuda_env: dict[str, str], tmp_path: Path, make_environment: Callable[[bool], Path]
) -> None:
    package = shutil.copytree(site_packages(installed) / "posenc", tmp_path / "posenc")
    python = make_environment(False) / "bin/python"
    arguments = (f"-DCMAKE_PREFIX_PATH={package}", f"-DPython3_EXECUTABLE={python}")
    output = configure(installed, tmp_path / "build", *arguments, env=no_cuda_env, ok=False)
    assert f"{python} has none" in output
    assert "pip install" in output
