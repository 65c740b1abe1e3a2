"""The tables of cases and the comparisons that several test files share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

ops = torch.ops.posenc

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
SIGNED_DTYPES = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED_DTYPES = (torch.uint8, torch.uint16, torch.uint32)
POSITION_DTYPES = (*SIGNED_DTYPES, *UNSIGNED_DTYPES, *DTYPES)
ORDERS = ("interleaved", "interleaved_cos_first", "split", "split_cos_first")
ODDS = ("sin", "zero", "cut")

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

#: A convention in which every argument differs from its default.
OTHER_CONVENTION = {
    "base": 100.0,
    "freq_shift": 1.0,
    "position_scale": -0.5,
    "order": "split_cos_first",
    "odd": "zero",
}

_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def name_of(value: object) -> str:
    """A short test id."""
    return str(value).removeprefix("torch.")


def bits(tensor: Tensor) -> Tensor:
    """The bit patterns, so that -0.0 differs from 0.0."""
    return tensor.detach().cpu().contiguous().view(_INTS[tensor.element_size()])


def assert_same_bits(actual: Tensor, expected: Tensor, case: object = "") -> None:
    """Asserts equal dtype, shape and bits (any NaN equals any other)."""
    assert actual.dtype == expected.dtype, f"{case}: dtype {actual.dtype}, expected {expected.dtype}"
    assert actual.shape == expected.shape, f"{case}: shape {list(actual.shape)}, expected {list(expected.shape)}"
    nan = actual.detach().cpu().isnan() & expected.detach().cpu().isnan()
    differs = (bits(actual) != bits(expected)) & ~nan
    if not bool(differs.any()):
        return
    index = tuple(differs.nonzero()[0].tolist())
    actual, expected = actual.detach(), expected.detach()
    raise AssertionError(
        f"{case}: {int(differs.sum())} of {differs.numel()} elements differ, the first at {list(index)}: "
        f"{float(actual[index])!r}, expected {float(expected[index])!r}"
    )


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which the sum with x is formed."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def definition(x: Tensor, encoding: Tensor, input_scale: float = 1.0, alpha: float = 1.0) -> Tensor:
    """What `add` gives, bit for bit, in eager PyTorch; ``encoding`` of dtype compute_dtype(x.dtype)."""
    return (x.to(compute_dtype(x.dtype)) * input_scale + alpha * encoding).to(x.dtype)


def _sliced(tensor: Tensor) -> Tensor:
    storage = tensor.new_full([2 * size + 1 for size in tensor.shape], 7.0)
    view = storage[tuple(slice(1, 2 * size + 1, 2) for size in tensor.shape)]
    return view.copy_(tensor)


def _reordered(tensor: Tensor, order: list[int]) -> Tensor:
    inverse = [order.index(d) for d in range(tensor.dim())]
    return tensor.permute(order).contiguous().permute(inverse)


#: Copies of a tensor with the same values and other strides, by name.
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda t: t.clone(memory_format=torch.contiguous_format),
    "transposed": lambda t: _reordered(t, [t.dim() - 2, *range(t.dim() - 2), t.dim() - 1]),
    "column_major": lambda t: _reordered(t, list(reversed(range(t.dim())))),
    "sliced": _sliced,
    "shifted": lambda t: torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape),
}

#: The same, and layouts in which elements share memory: for reading only.
READ_LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    **LAYOUTS,
    "expanded_batch": lambda t: t[:1].expand_as(t),
    "expanded_seq": lambda t: t[..., :1, :].expand_as(t),
    "expanded_columns": lambda t: t[..., :1].expand_as(t),
    "expanded_all": lambda t: t.flatten()[0].expand_as(t),
}


def many_dimensions(dtype: torch.dtype, device: str, count: int = 14, d_model: int = 3) -> Tensor:
    """A tensor of ``count`` dimensions of size 2 and d_model columns, of which no two neighbours can be merged."""
    order = [*range(0, count, 2), *range(1, count, 2), count]
    return _reordered(torch.randn([2] * count + [d_model], device=device).to(dtype), order)


def memory_events(call: Callable[[], object], device: str = "cpu") -> list[str]:
    """What a call allocated and frees, and the operators that ran in it, beside the one of ours."""
    call()
    if device == "cuda":
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        call()
        return ["cuda allocation"] * (torch.cuda.memory_stats()["allocation.all.allocated"] - before)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    names = [event.name() for event in profile.profiler.kineto_results.events()]
    assert any(name.startswith("posenc::") for name in names), names
    return [name for name in names if name == "[memory]" or name.startswith("aten::")]
