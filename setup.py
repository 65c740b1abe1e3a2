"""Drives CMake and packages what it installs; CMakeLists.txt alone says how the library is built.

Environment variables:
    POSENC_CUDA        AUTO (default), ON or OFF
    POSENC_CMAKE_ARGS  further arguments for CMake
    POSENC_BUILD_DIR   a build folder that is already built; only installs from it
"""

import importlib
import importlib.util
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import setuptools
from setuptools.command.build_ext import build_ext

if int(setuptools.__version__.split(".")[0]) < 77:  # only without build isolation
    sys.exit(
        f"posenc: setuptools must be >= 77, but got {setuptools.__version__}. "
        'Run: pip install --upgrade "setuptools>=77" "cmake>=3.28" ninja'
    )
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).resolve().parent
VERSION = re.search(r'#define POSENC_VERSION "(.+)"', (ROOT / "csrc/posenc/version.h").read_text())[1]
TORCH_MINIMUM = "2.11"


def find_torch():
    """The folder and the major.minor of the torch that posenc will run with; stops with one line if there is none."""
    spec = importlib.util.find_spec("torch")
    origin = spec and spec.origin
    if not origin:
        # pip builds behind a PYTHONPATH that hides the environment it installs into; -E looks past it.
        query = "import importlib.util as u; s = u.find_spec('torch'); print((s and s.origin) or '')"
        command = [sys.executable, "-E", "-c", query]
        origin = subprocess.run(command, cwd=sys.prefix, capture_output=True, text=True).stdout.strip()
    if not origin:
        sys.exit(
            f"posenc: torch >= {TORCH_MINIMUM} must be installed before posenc is built, but {sys.executable} has "
            f'none. Run: pip install "torch>={TORCH_MINIMUM}", then this command again (with --no-build-isolation '
            "where builds get an environment of their own, as with uv)."
        )
    torch = Path(origin).parent
    found = re.search(r"__version__ = '((\d+)\.(\d+).*)'", (torch / "version.py").read_text())
    if [int(found[2]), int(found[3])] < [int(part) for part in TORCH_MINIMUM.split(".")]:
        sys.exit(
            f"posenc: torch must be >= {TORCH_MINIMUM}, but got {found[1]} in {torch}. "
            f'Run: pip install --upgrade "torch>={TORCH_MINIMUM}".'
        )
    return torch, f"{found[2]}.{found[3]}"


def find_tool(name, folder_attribute):
    """A program from its Python package, which need not be on PATH, else from PATH, else None."""
    try:
        return str(Path(getattr(importlib.import_module(name), folder_attribute)) / name)
    except (ImportError, AttributeError):
        return shutil.which(name)


def run(*command):
    if subprocess.run([str(item) for item in command]).returncode != 0:
        sys.exit(f"posenc: {command[1]} of CMake failed, its messages are above.")


class CMakeBuild(build_ext):
    """Runs CMake in place of a list of extension modules."""

    def run(self):
        cmake = find_tool("cmake", "CMAKE_BIN_DIR")
        if cmake is None:
            sys.exit('posenc: CMake must be installed, but none was found. Run: pip install "cmake>=3.28" ninja')
        build_dir = os.environ.get("POSENC_BUILD_DIR") or self.build_temp
        if build_dir == self.build_temp:
            self.build(cmake, build_dir)
        package = ROOT / "python/posenc" if self.inplace else Path(self.build_lib).resolve() / "posenc"
        run(cmake, "--install", build_dir, "--prefix", package)
        run(cmake, "--install", build_dir, "--prefix", package, "--component", "python")

    def build(self, cmake, build_dir):
        if "CXX" not in os.environ and os.name == "posix" and not any(map(shutil.which, ("c++", "g++", "clang++"))):
            sys.exit("posenc: a C++20 compiler must be installed, but none was found. Run: sudo apt-get install g++")
        torch, _ = find_torch()
        arguments = [
            "-DCMAKE_BUILD_TYPE=Release",
            f"-DLibTorch_ROOT={torch}",
            f"-DPOSENC_CUDA={os.environ.get('POSENC_CUDA', 'AUTO')}",
            f"-DPOSENC_RELOCATABLE={'OFF' if self.inplace else 'ON'}",
            "-DPOSENC_TESTS=OFF",
            "-DPOSENC_WERROR=OFF",
        ]
        ninja = find_tool("ninja", "BIN_DIR")
        if ninja and "CMAKE_GENERATOR" not in os.environ:
            arguments += ["-GNinja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        arguments += shlex.split(os.environ.get("POSENC_CMAKE_ARGS", ""))
        run(cmake, "-S", ROOT, "-B", build_dir, *arguments)
        run(cmake, "--build", build_dir, "--parallel", os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", os.cpu_count()))

    def get_outputs(self):
        return []

    def get_output_mapping(self):
        return {}


class BinaryDistribution(setuptools.Distribution):
    def has_ext_modules(self):
        return True


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        # The library holds no Python symbol, so one wheel serves every Python.
        return "py3", "none", super().get_tag()[2]


# A source distribution needs no torch. setuptools does not tell setup.py which hook runs it; the stack does.
if any(frame.function.endswith("_sdist") for frame in inspect.stack()) or "sdist" in sys.argv:
    torch_requirement = f"torch>={TORCH_MINIMUM}"
else:
    # The C++ interface of torch changes with each minor version.
    torch_requirement = f"torch=={find_torch()[1]}.*"

setuptools.setup(
    version=VERSION,
    install_requires=[torch_requirement, "numpy"],
    distclass=BinaryDistribution,
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": PlatformWheel},
)
