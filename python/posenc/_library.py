"""Loads the operator library when imported, or says plainly why it cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import torch

_PACKAGE = Path(__file__).resolve().parent

_BUILD_COMMAND = "pip install --no-build-isolation -e ."
_REBUILD_COMMAND = "pip install --no-build-isolation --no-cache-dir --force-reinstall --no-deps <source of posenc>"

try:
    from . import _build_info
except ImportError:
    raise ImportError(
        f"posenc: the C++ library must be built before posenc is imported, but {_PACKAGE} has none. "
        f"Run in the source tree: {_BUILD_COMMAND}"
    ) from None

__version__ = _build_info.POSENC_VERSION

#: Folder for ``CMAKE_PREFIX_PATH``, so that ``find_package(posenc)`` finds the library of this installation.
cmake_prefix_path = str(_PACKAGE)


def include_path() -> str:
    """Returns the folder of the C++ headers: ``#include <posenc/posenc.h>``."""
    return str(_PACKAGE / "include")


def library_path() -> str:
    """Returns the path of the shared library, for ``dlopen`` or a linker."""
    return str(_PACKAGE / _build_info.LIBRARY)


def _major(version: str) -> str:
    return version.split(".")[0]


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _check_torch() -> None:
    # Before the library is opened: the linker would only name a mangled symbol or a missing file.
    built = _build_info
    if _minor(torch.__version__) != _minor(built.TORCH_VERSION):
        raise ImportError(
            f"posenc: torch must be {_minor(built.TORCH_VERSION)}, which posenc {built.POSENC_VERSION} was built for, "
            f"but got torch {torch.__version__}. Run: pip install 'torch=={_minor(built.TORCH_VERSION)}.*', "
            f"or build posenc for the torch that is installed: {_REBUILD_COMMAND}"
        )
    if built.CUDA_VERSION is not None:
        found = torch.version.cuda
        if found is None or _major(found) != _major(built.CUDA_VERSION):
            raise ImportError(
                f"posenc: torch must be built with CUDA {_major(built.CUDA_VERSION)}, as posenc {built.POSENC_VERSION} "
                f"was, but got torch {torch.__version__} with CUDA {found or 'none'}. Install such a torch, "
                f"or build posenc for the torch that is installed: {_REBUILD_COMMAND}"
            )


def _load() -> None:
    path = Path(library_path())
    if not path.is_file():
        raise ImportError(
            f"posenc: the C++ library must be {path}, but there is no such file. "
            f"Install posenc again, or run in the source tree: {_BUILD_COMMAND}"
        )
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        raise ImportError(
            f"posenc: {path} must be loadable on this system, but the loader says: {error}. "
            f"Build posenc on this machine: {_REBUILD_COMMAND}"
        ) from error


_check_torch()
_load()
