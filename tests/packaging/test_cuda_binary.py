"""tests/cuda/check_binary.py refuses what must not be in a kernel, here in kernels made for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import ROOT, run
from test_configure import require_nvcc

#: What a kernel computes, the options it is compiled with, and the complaint; the first has none.
KERNELS = {
    "correctly_rounded": ("out[i] = in[i] * 3.0f + 1.0f", "--fmad=false", None),
    "fused": ("out[i] = in[i] * 3.0f + 1.0f", "--fmad=true", "FFMA"),
    "approximate": ("out[i] = sinf(in[i])", "--use_fast_math", "MUFU.SIN"),
    "subnormals_flushed": ("out[i] = in[i] + 1.0f", "--ftz=true", "FADD.FTZ"),
    "integer_division": ("out[i] = in[i / n]", "--fmad=false", "MUFU.RCP"),
    "call": ("out[i] = in[i / (n * 1LL << 40)]", "--fmad=false", "CALL"),
    "local_array": (
        "float a[64] = {}; for (int j = 0; j < n; ++j) a[j * i & 63] += in[j]; out[i] = a[n & 63]",
        "--fmad=false",
        "bytes of stack or local memory",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_only_exact_kernels_pass(tmp_path: Path, name: str) -> None:
    require_nvcc()
    body, option, complaint = KERNELS[name]
    source = tmp_path / "kernel.cu"
    source.write_text(
        f"__global__ void kernel(float* out, const float* in, int n) {{ int i = threadIdx.x; {body}; }}\n"
    )
    run("nvcc", "-arch=sm_80", option, "-c", "-o", tmp_path / "kernel.o", source)
    check = (sys.executable, ROOT / "tests/cuda/check_binary.py", tmp_path / "kernel.o")
    output = run(*check, ok=complaint is None)
    assert "check_binary: 1 kernels" in output
    if complaint is not None:
        assert complaint in output
