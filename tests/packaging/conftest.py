"""Builds what a user would install, once: a source distribution, the wheel from it, and environments around them.

The wheel is built where no CUDA toolkit can be found, as most users build it, and by pip with build isolation.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
# cmake and ninja are those of the environment that runs the tests, whether or not it was activated.
ENV = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
for name in ("CUDAARCHS", "POSENC_BUILD_DIR", "POSENC_CMAKE_ARGS", "POSENC_CUDA"):
    ENV.pop(name, None)


def run(*command: object, env: dict[str, str] | None = None, cwd: Path | None = None, ok: bool = True) -> str:
    """Runs a command, which must succeed or fail, and returns all it printed; a failure's text without line breaks."""
    done = subprocess.run(
        [str(item) for item in command],
        env=ENV if env is None else env,
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if ok:
        assert done.returncode == 0, f"{command} failed with {done.returncode}:\n{done.stdout}"
        return done.stdout
    assert done.returncode != 0, f"{command} must fail, but printed:\n{done.stdout}"
    return " ".join(done.stdout.split())


@pytest.fixture(scope="session")
def no_cuda_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment variables of a machine without CUDA toolkit: each folder that has nvcc loses it."""
    folders = []
    for folder in map(Path, ENV["PATH"].split(os.pathsep)):
        if (folder / "nvcc").exists():
            copy = tmp_path_factory.mktemp("bin")
            for tool in folder.iterdir():
                if tool.name != "nvcc":
                    (copy / tool.name).symlink_to(tool)
            folder = copy
        folders.append(str(folder))
    dropped = {"CUDA_HOME", "CUDA_PATH", "CUDACXX", "LIBRARY_PATH"}
    kept = {name: value for name, value in ENV.items() if name not in dropped}
    return {**kept, "PATH": os.pathsep.join(folders)}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution, which therefore has to be complete."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-c", f"import setuptools.build_meta as b; b.build_sdist({str(folder)!r})", cwd=ROOT)
    (archive,) = folder.glob("posenc-*.tar.gz")
    run("tar", "-xzf", archive, "-C", folder)
    return folder / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="session")
def make_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], Path]:
    """Makes a virtual environment, empty or with links to all that is installed here except posenc."""

    def make(with_torch: bool) -> Path:
        folder = tmp_path_factory.mktemp("env")
        run(sys.executable, "-m", "venv", folder)
        if with_torch:
            packages = site_packages(folder)
            for item in SITE_PACKAGES.iterdir():
                if "posenc" not in item.name and not (packages / item.name).exists():
                    (packages / item.name).symlink_to(item)
        return folder

    return make


def site_packages(environment: Path) -> Path:
    return environment / SITE_PACKAGES.relative_to(sys.prefix)


@pytest.fixture(scope="session")
def wheel(
    source: Path,
    no_cuda_env: dict[str, str],
    make_environment: Callable[[bool], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    python = make_environment(True) / "bin/python"
    run(python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, source, env=no_cuda_env)
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def installed(wheel: Path, make_environment: Callable[[bool], Path]) -> Path:
    """An environment into which the wheel was installed. pip also checks there that its requirements are met."""
    environment = make_environment(True)
    run(environment / "bin/python", "-m", "pip", "install", "--no-index", wheel)
    return environment
