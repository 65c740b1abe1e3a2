"""The Python package as pip builds and installs it; each test has the number of the report it answers."""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import ENV, run, site_packages

MINOR = ".".join(torch.__version__.split(".")[:2])
SHOW = "import posenc, sys; print(posenc.encode(2, 4).tolist()); print(posenc.__file__)"


@pytest.fixture
def copy_of_package(installed: Path, tmp_path: Path) -> Path:
    """A folder with a copy of the installed posenc, and the torch and CUDA libraries that a move keeps beside it."""
    shutil.copytree(site_packages(installed) / "posenc", tmp_path / "posenc")
    for neighbour in ("torch", "nvidia"):
        if (site_packages(installed) / neighbour).exists():
            (tmp_path / neighbour).symlink_to(site_packages(installed) / neighbour)
    return tmp_path


def import_copy(installed: Path, folder: Path, ok: bool) -> str:
    env = {**ENV, "PYTHONPATH": str(folder)}
    return run(installed / "bin/python", "-c", SHOW, env=env, cwd=folder, ok=ok)


def library(package: Path) -> Path:
    return package / "lib/libposenc.so"


def dynamic_section(file: Path, tag: str) -> list[str]:
    return re.findall(rf"\({tag}\).*\[(.*)\]", run("readelf", "--dynamic", "--wide", file))


def test_pkg01_wheel_requires_the_torch_minor_it_was_built_for(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    assert f"Requires-Dist: torch=={MINOR}.*" in lines
    assert "Requires-Dist: numpy" in lines


@pytest.mark.parametrize(
    ("recorded", "patched", "names"),
    [
        ("TORCH_VERSION", '"2.3.1"', ["torch must be 2.3,", f"but got torch {torch.__version__}", "pip install"]),
        ("CUDA_VERSION", '"9.2"', ["torch must be built with CUDA 9,", f"but got torch {torch.__version__}"]),
        ("LIBRARY", '"lib/gone.so"', ["lib/gone.so, but there is no such file", "pip install"]),
    ],
)
def test_pkg01_import_of_what_does_not_fit_names_both_sides_and_the_remedy(
    installed: Path, copy_of_package: Path, recorded: str, patched: str, names: list[str]
) -> None:
    info = copy_of_package / "posenc/_build_info.py"
    text, count = re.subn(rf"^{recorded} = .*$", f"{recorded} = {patched}", info.read_text(), flags=re.MULTILINE)
    assert count == 1
    info.write_text(text)
    output = import_copy(installed, copy_of_package, ok=False)
    for name in ["ImportError: posenc: ", *names]:
        assert name in output
    assert "undefined symbol" not in output


def test_pkg01_import_from_an_unbuilt_source_tree_says_how_to_build(installed: Path, source: Path) -> None:
    output = import_copy(installed, source / "python", ok=False)
    assert "ImportError: posenc: the C++ library must be built" in output
    assert "pip install --no-build-isolation -e ." in output


def test_pkg03_without_a_cuda_toolkit_the_cpu_library_is_built(installed: Path) -> None:
    info = (site_packages(installed) / "posenc/_build_info.py").read_text()
    assert "CUDA_VERSION = None" in info
    needed = dynamic_section(library(site_packages(installed) / "posenc"), "NEEDED")
    assert not [name for name in needed if "cuda" in name]


def test_pkg06_without_torch_pip_install_stops_with_the_command_that_helps(
    source: Path, make_environment: Callable[[bool], Path]
) -> None:
    output = run(make_environment(False) / "bin/python", "-m", "pip", "install", source, ok=False)
    assert "posenc: torch >= 2.11 must be installed before posenc is built" in output
    assert 'Run: pip install "torch>=2.11"' in output
    assert "Traceback" not in output
    assert "ModuleNotFoundError" not in output


def test_pkg06_plain_pip_install_uses_the_torch_that_is_there(
    wheel: Path,  # built from the same folder, so that only what differs is compiled again
    source: Path,
    no_cuda_env: dict[str, str],
    make_environment: Callable[[bool], Path],
) -> None:
    python = make_environment(True) / "bin/python"
    run(python, "-m", "pip", "install", source, env=no_cuda_env)
    assert "[[0.0, 1.0, 0.0, 1.0]" in run(python, "-c", SHOW, cwd=Path("/"))


def test_pkg08_posenc_can_be_the_first_import(installed: Path) -> None:
    output = run(installed / "bin/python", "-c", SHOW, cwd=Path("/"))
    assert "[[0.0, 1.0, 0.0, 1.0]" in output
    assert str(installed) in output


def test_pkg08_run_path_is_relative_and_survives_a_move(installed: Path, copy_of_package: Path) -> None:
    file = library(copy_of_package / "posenc")
    (run_path,) = dynamic_section(file, "RUNPATH")
    assert all(folder.startswith("$ORIGIN") for folder in run_path.split(":"))
    # ldd resolves from the run path alone, without a process that has torch loaded already.
    assert "not found" not in run("ldd", file)
    assert str(copy_of_package) in import_copy(installed, copy_of_package, ok=True)


def test_pkg10_one_wheel_serves_every_python(wheel: Path) -> None:
    assert "-py3-none-" in wheel.name


def test_pkg12_library_needs_no_python(installed: Path) -> None:
    file = library(site_packages(installed) / "posenc")
    needed = dynamic_section(file, "NEEDED")
    assert "libtorch_cpu.so" in needed
    assert not [name for name in needed if "python" in name]
    undefined = re.findall(r" U (\S+)", run("nm", "--dynamic", "--undefined-only", file))
    assert undefined
    assert not [name for name in undefined if re.match(r"_?Py[A-Z_]", name)]
