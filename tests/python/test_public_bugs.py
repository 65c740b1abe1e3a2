"""What went wrong in public projects, a test for each: the report is named in the docstring."""

from __future__ import annotations

import gc
import os
import resource

import exact
import posenc
import pytest
import torch
from cases import DTYPES, assert_same_bits, name_of
from torch import Tensor

SIXTEEN_BIT = (torch.bfloat16, torch.float16)

# ---- Precision ----


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float16, 2.5e-4), (torch.bfloat16, 2.0e-3)], ids=name_of)
def test_nothing_is_computed_in_16_bits(device, dtype, bound):
    """vllm-project/vllm#54620: a table computed in float16, off by 0.42."""
    result = posenc.encode(2048, 512, dtype=dtype, device=device).cpu()
    for row in (0, 1, 777, 1024, 2047):
        exact.assert_accurate(result[row : row + 1], exact.encoding([row], 512), dtype)
    reference = posenc.encode(2048, 512, dtype=torch.float64, device=device).cpu()
    assert float((result.double() - reference).abs().max()) <= bound


def test_positions_stay_distinct_in_a_bfloat16_module(device):
    """EleutherAI/gpt-neox#1016: a cast of the model cast the positions; 256 and 257 became one."""
    module = posenc.nn.PositionalEncoding(64).bfloat16()
    rows = module(torch.zeros(1, 4096, 64, dtype=torch.bfloat16, device=device))[0]
    exact.assert_accurate(rows[256:258], exact.encoding([256, 257], 64), torch.bfloat16)
    assert not torch.equal(rows[256], rows[257])
    reference = posenc.encode(4096, 64, dtype=torch.float64, device=device).bfloat16()
    assert len(rows.unique(dim=0)) == len(reference.unique(dim=0))


def test_a_timestep_is_not_rounded_to_the_dtype_of_the_result(device):
    """modelscope/DiffSynth-Studio#1025: 998.3897 became 1000 before any sine was taken."""
    timestep = torch.tensor([998.3897], dtype=torch.float64, device=device)
    result = posenc.encode(timestep, 256, dtype=torch.bfloat16)
    exact.assert_accurate(result, exact.encoding([998.3897], 256), torch.bfloat16)
    assert not torch.equal(result, posenc.encode(timestep.round(decimals=-1), 256, dtype=torch.bfloat16))


def test_frequencies_are_not_quantised(device):
    """Modalities/modalities#462: frequencies in bfloat16, 0.6 rad off at position 512."""
    x = torch.zeros(1, 4096, 128, dtype=torch.bfloat16, device=device)
    pairs = posenc.add(x)[0].double().unflatten(-1, (-1, 2))
    reference = posenc.encode(4096, 128, dtype=torch.float64, device=device).unflatten(-1, (-1, 2))

    def phase(values: Tensor) -> Tensor:
        return torch.atan2(values[..., 0], values[..., 1])

    turn = 2 * torch.pi
    error = torch.remainder(phase(pairs) - phase(reference) + torch.pi, turn) - torch.pi
    assert float(error.abs().max()) <= 1e-2


@pytest.mark.parametrize("low", SIXTEEN_BIT, ids=name_of)
def test_autocast_changes_no_bit(device, low):
    """huggingface/diffusers#13922: under autocast, hundreds of positions collapsed to one row."""
    positions = torch.arange(65536, 65601, device=device)
    x = torch.ones(2, 65, 64, device=device)
    outside = posenc.encode(positions, 64), posenc.add(x, 65536), posenc.encode(65, 64, offset=65536, device=device)
    with torch.autocast(device, low):
        inside = posenc.encode(positions, 64), posenc.add(x, 65536), posenc.encode(65, 64, offset=65536, device=device)
    for a, b in zip(inside, outside):
        assert_same_bits(a, b)
    assert len(inside[0].unique(dim=0)) == 65


@pytest.mark.parametrize("offset", [0, 1_000, 100_000, 1_000_000])
def test_errors_do_not_grow_with_the_angle(device, offset):
    """lablup/mlxcel#1055: fast-math sines of angles that were not reduced."""
    result = posenc.encode(5, 2, offset=offset, device=device)
    exact.assert_accurate(result, exact.encoding(range(offset, offset + 5), 2), torch.float32)


def test_far_positions_are_exact_in_float32(device):
    """huggingface/transformers#46174: a phase in float32 loses 6e-2 at a million."""
    result = posenc.encode(200, 512, offset=999_800, device=device).cpu()
    for row in (0, 100, 199):
        exact.assert_accurate(result[row : row + 1], exact.encoding([999_800 + row], 512), torch.float32)
    reference = posenc.encode(200, 512, offset=999_800, dtype=torch.float64, device=device).cpu()
    assert float((result.double() - reference).abs().max()) <= 1e-6


@pytest.mark.parametrize("dtype", SIXTEEN_BIT, ids=name_of)
def test_16_bit_tables_are_the_rounding_of_the_float64_one(device, dtype):
    """facebookresearch/fairseq2#476: tables built in low precision, then in float32 and copied down."""
    result = posenc.encode(3000, 512, dtype=dtype, device=device)
    rounded = posenc.encode(3000, 512, dtype=torch.float64, device=device).to(dtype)
    # Not all: to() rounds float64 twice, by way of float32.
    assert float((result == rounded).double().mean()) >= 0.999
    ulp = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}[dtype]
    assert float((result.double() - rounded.double()).abs().max()) <= ulp


# ---- Dtypes ----


def test_float16_works_on_every_device(device):
    """speechbrain/speechbrain#1470: no arange in Half on the CPU."""
    x = torch.zeros(8, 50, 128, dtype=torch.float16, device=device)
    encoding = posenc.encode(50, 128, dtype=torch.float16, device=device)
    exact.assert_accurate(encoding, exact.encoding(range(50), 128), torch.float16)
    difference = posenc.add(x) - encoding  # a sum is made in float32 and rounded a second time
    assert float(difference.abs().max()) <= 2.0**-11


def test_the_dtype_of_a_module_outlives_longer_sequences(device):
    """huggingface/transformers#13665: a table that was made anew for a longer sequence came back in float32."""
    module = posenc.nn.PositionalEncoding(16).half()
    for seq_len in (4, 4096, 4):
        assert module(torch.zeros(1, seq_len, 16, dtype=torch.float16, device=device)).dtype == torch.float16


def test_a_float64_model_has_float64_accuracy(device):
    """awslabs/gluonts#3307: a hard-coded float32 table."""
    module = posenc.nn.PositionalEncoding(32).double()
    result = module(torch.zeros(1, 60, 32, dtype=torch.float64, device=device))
    assert result.dtype == torch.float64
    exact.assert_accurate(result[0], exact.encoding(range(60), 32), torch.float64)


@pytest.mark.parametrize("position_dtype", [torch.float32, torch.float64, torch.int64], ids=name_of)
def test_x_decides_the_dtype_of_a_sum(device, position_dtype):
    """lucidrains/rotary-embedding-torch#9: type promotion returned float32."""
    x = torch.zeros(2, 5, 8, dtype=torch.bfloat16, device=device)
    positions = torch.arange(5, dtype=position_dtype, device=device)
    assert posenc.add(x, positions=positions, input_scale=2.0, alpha=0.5).dtype == torch.bfloat16


@pytest.mark.parametrize("low", SIXTEEN_BIT, ids=name_of)
def test_autocast_mixes_no_dtypes(device, low):
    """pytorch/pytorch#46178: an operator without an autocast rule failed on the output of a Linear."""
    linear = torch.nn.Linear(8, 8, device=device)
    x = torch.randn(2, 5, 8, device=device)
    with torch.autocast(device, low):
        hidden = linear(x)
        assert hidden.dtype == low
        assert posenc.add(hidden).dtype == low
        assert posenc.encode(5, 8, device=device).dtype == torch.get_default_dtype()


def test_positions_beyond_the_half_range(device):
    """speechbrain/speechbrain#1470: float16 ends at 65504 and skips integers above 2048."""
    result = posenc.add(torch.zeros(1, 4, 64, dtype=torch.float16, device=device), offset=70_000)
    exact.assert_accurate(result[0], exact.encoding(range(70_000, 70_004), 64), torch.float16)


# ---- Shapes ----


@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8), (0, 0, 8)], ids=str)
def test_no_elements_are_no_launch(device, shape):
    """pytorch/pytorch#46572: an empty grid failed in a later, unrelated call."""
    x = torch.empty(shape, device=device, requires_grad=True)
    y = posenc.add(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape
    assert posenc.encode(0, 8, device=device).shape == (0, 8)
    if device == "cuda":
        torch.cuda.synchronize()
    assert float(torch.ones(3, device=device).sum()) == 3


@pytest.mark.skipif(os.environ.get("POSENC_LARGE_TESTS") != "1", reason="takes 5 GB: set POSENC_LARGE_TESTS=1")
def test_more_than_2_to_the_31_elements(device):
    """flashinfer-ai/flashinfer#3391: 32-bit indices; one row over 2^31 elements failed."""
    rows = 2**22 + 1
    x = torch.ones(1, 512, dtype=torch.bfloat16, device=device).expand(rows, 512)
    y = posenc.add(x)
    for row in (0, rows - 1):
        assert_same_bits(y[row : row + 1], posenc.add(x[:1], offset=row))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_strides_are_read(device, dtype):
    """vllm-project/vllm#17091: slices and transposed tensors read as if they were contiguous."""
    base = torch.randn(6, 10, 32, device=device).to(dtype)
    views = {
        "transposed": base.transpose(0, 1),
        "every other token": base[:, ::2],
        "every other column": base[..., ::2],
        "a part of the columns": base[..., 3:20],
        "expanded": base[:1].expand(4, 10, 32),
    }
    for name, x in views.items():
        assert_same_bits(posenc.add(x), posenc.add(x.contiguous()), name)


# ---- Speed and memory: what can be told without a clock ----


def profiled(call, device: str) -> list[torch.autograd.profiler_util.FunctionEvent]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        call()
    return profile.events()


def test_nothing_waits_for_the_device(device):
    """vllm-project/vllm-omni#5318: a host read a GPU scalar on each step, 940 ms."""
    if device == "cpu":
        pytest.skip("there is nothing to wait for")
    x = torch.randn(2, 5, 8, device=device, requires_grad=True)
    positions = torch.arange(5, device=device)
    module = posenc.nn.PositionalEncoding(8, max_len=100)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for y in (posenc.add(x, positions=positions), module(x, torch.tensor([3, 7], device=device)), module(x)):
            y.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_nothing_is_copied_to_the_device(device):
    """lyuwenyu/RT-DETR#677: a table moved to the device on each call."""
    x = torch.randn(2, 5, 64, device=device)
    posenc.add(x)
    events = profiled(lambda: posenc.add(x), device)
    assert not [event.name for event in events if "copy" in event.name.lower() or event.name == "aten::to"]
    if device == "cuda":
        assert len([e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]) == 1


def test_strided_inputs_are_not_copied(device):
    """vllm-project/vllm#18046: a wrapper that made its input contiguous."""
    x = torch.randn(4, 128, 600, device=device)[..., :512]
    size = x.numel() * x.element_size()
    posenc.add(x)
    events = profiled(lambda: posenc.add(x), device)
    kind = "self_device_memory_usage" if device == "cuda" else "self_cpu_memory_usage"
    allocated = sum(max(getattr(event, kind), 0) for event in events)
    assert size <= allocated <= 1.01 * size + 1024
    assert not [event.name for event in events if event.name in ("aten::contiguous", "aten::clone", "aten::copy_")]


def test_memory_does_not_grow_with_the_number_of_shapes():
    """LibreYOLO/libreyolo#541: a cache keyed by exact shape."""

    def call(i: int) -> None:
        d_model = 8 + 2 * (i % 300)
        posenc.encode(1 + i % 97, d_model, base=1000.0 + i)
        posenc.add(torch.zeros(1 + i % 3, 1 + i % 31, d_model), offset=i * 64)

    def resident() -> int:
        gc.collect()
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    for i in range(300):
        call(i)
    before = resident()
    for i in range(300, 1300):
        call(i)
    assert resident() - before < 4 << 20
