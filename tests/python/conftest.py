"""What every test starts from: torch's own defaults, a fixed seed, and each device there is."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import posenc  # noqa: F401  (loads the operators)
import pytest
import torch

CUDA_REASON = "no GPU, or a library without CUDA kernels (POSENC_REQUIRE_CUDA=1 makes this a failure)"


def has_cuda() -> bool:
    """A GPU is visible and the library has kernels for it."""
    return torch.cuda.is_available() and torch._C._dispatch_has_kernel_for_dispatch_key("posenc::add", "CUDA")


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """Runs a test on the CPU and on a GPU."""
    if request.param == "cuda" and not has_cuda():
        if os.environ.get("POSENC_REQUIRE_CUDA") == "1":
            pytest.fail(CUDA_REASON)
        pytest.skip(CUDA_REASON)
    return request.param


@pytest.fixture(autouse=True)
def torch_defaults() -> Iterator[None]:
    """A fixed seed before each test; torch's global settings as they were after it."""
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_num_threads(threads)
    assert torch.is_grad_enabled()
    assert not torch.is_inference_mode_enabled()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Gives all tests that were not run for want of a GPU one place, so that the report counts them in one line."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and CUDA_REASON in report.longrepr[2]:
        report.longrepr = (__file__, None, report.longrepr[2])
    return report
