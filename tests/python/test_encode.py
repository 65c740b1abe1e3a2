"""encode and its overloads: which call means what, shapes, dtypes, devices, strides, and what is written."""

from __future__ import annotations

import exact
import numpy
import posenc
import pytest
import torch
from cases import (
    DTYPES,
    LAYOUTS,
    OTHER_CONVENTION,
    POSITION_DTYPES,
    assert_same_bits,
    many_dimensions,
    memory_events,
    name_of,
    ops,
)
from exact import Convention
from torch import Tensor

POSITION_SHAPES = ((), (0,), (1,), (5,), (2, 3), (1, 1), (2, 0, 3), (2, 1, 3, 1), (2, 3, 1, 2, 2))


def arange(*shape: int, start: int = 0, dtype: torch.dtype = torch.int64, device: str = "cpu") -> Tensor:
    """Positions start, start + 1, .. of the given shape."""
    count = int(numpy.prod(shape))
    return torch.arange(start, start + count, device=device).to(dtype).reshape(shape)


def test_a_range_counts_up_from_offset(device):
    for offset in (0, 7, -3, 10**12):
        rows = posenc.encode(5, 6, offset, device=device)
        assert_same_bits(rows, posenc.encode(arange(5, start=offset, device=device), 6))
        assert_same_bits(posenc.encode(5, 6, offset=offset, device=device), rows)


@pytest.mark.parametrize("convention", [{}, OTHER_CONVENTION], ids=["default", "other"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_every_form_of_a_range_gives_the_same_result(device, dtype, convention):
    expected = posenc.encode(6, 7, 3, dtype=dtype, device=device, **convention)
    exact.assert_accurate(expected, exact.encoding(range(3, 9), 7, Convention(**convention)))
    for call in (ops.encode, ops.encode.default):
        assert_same_bits(call(6, 7, 3, dtype=dtype, device=device, **convention), expected)
        assert_same_bits(call(6, 7, offset=3, dtype=dtype, device=device, **convention), expected)
    for call in (ops.encode, ops.encode.out):
        out = torch.empty(6, 7, dtype=dtype, device=device)
        assert call(6, 7, 3, out=out, **convention) is None
        assert_same_bits(out, expected)
    out = torch.empty(6, 7, dtype=dtype, device=device)
    assert posenc.encode(6, 7, 3, out=out, **convention) is out
    assert_same_bits(out, expected)


@pytest.mark.parametrize("convention", [{}, OTHER_CONVENTION], ids=["default", "other"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_every_form_with_positions_gives_the_same_result(device, dtype, convention):
    positions = torch.tensor([[5, -2, 10**9], [0, 7, 7]], device=device)
    expected = posenc.encode(positions, 7, dtype=dtype, **convention)
    exact.assert_accurate(expected, exact.encoding(positions.flatten().tolist(), 7, Convention(**convention)))
    for call in (ops.encode, ops.encode.positions):
        assert_same_bits(call(positions, 7, dtype=dtype, **convention), expected)
    for call in (ops.encode, ops.encode.positions_out):
        out = torch.empty(2, 3, 7, dtype=dtype, device=device)
        assert call(positions, 7, out=out, **convention) is None
        assert_same_bits(out, expected)
    out = torch.empty(2, 3, 7, dtype=dtype, device=device)
    assert posenc.encode(positions, 7, out=out, **convention) is out
    assert_same_bits(out, expected)


@pytest.mark.parametrize("name", ["base", "freq_shift", "position_scale", "order", "odd"])
def test_each_convention_argument_is_forwarded(device, name):
    convention = {name: OTHER_CONVENTION[name]}
    expected = exact.encoding(range(4), 7, Convention(**convention))
    out = torch.empty(4, 7, dtype=torch.float64, device=device)
    exact.assert_accurate(posenc.encode(4, 7, dtype=torch.float64, device=device, **convention), expected)
    exact.assert_accurate(posenc.encode(arange(4, device=device), 7, dtype=torch.float64, **convention), expected)
    exact.assert_accurate(posenc.encode(4, 7, out=out, **convention), expected)
    exact.assert_accurate(posenc.encode(arange(4, device=device), 7, out=out, **convention), expected)


@pytest.mark.parametrize("shape", POSITION_SHAPES, ids=str)
def test_the_shape_is_that_of_positions_and_d_model(device, shape):
    for dtype in DTYPES:
        result = posenc.encode(arange(*shape, device=device), 4, dtype=dtype)
        assert result.shape == (*shape, 4)
        assert result.is_contiguous()
        rows = posenc.encode(result.numel() // 4, 4, dtype=dtype, device=device)
        assert_same_bits(result, rows.reshape(*shape, 4), shape)


def test_a_tensor_of_one_element_means_positions(device):
    row = posenc.encode(1, 6, 3, device=device)
    for call in (ops.encode, posenc.encode):
        assert_same_bits(call(torch.tensor([3], device=device), 6), row)
        assert_same_bits(call(torch.tensor(3, device=device), 6), row[0])
        assert_same_bits(call(torch.tensor([[3]], device=device), 6), row[None])
        assert_same_bits(call(torch.tensor([3.0], device=device), 6), row)


@pytest.mark.parametrize("position_dtype", POSITION_DTYPES, ids=name_of)
def test_positions_of_every_dtype(device, position_dtype):
    positions = arange(2, 5, dtype=position_dtype, device=device)
    expected = posenc.encode(10, 6, device=device).view(2, 5, 6)
    assert_same_bits(posenc.encode(positions, 6), expected)
    assert_same_bits(posenc.encode(positions, 6, out=torch.empty_like(expected)), expected)


def test_unsigned_positions_are_taken_at_their_full_range(device):
    for position_dtype, largest in ((torch.uint8, 2**8 - 1), (torch.uint16, 2**16 - 1), (torch.uint32, 2**32 - 1)):
        positions = torch.tensor([largest], dtype=position_dtype, device=device)
        assert_same_bits(posenc.encode(positions, 6), posenc.encode(1, 6, largest, device=device), position_dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("position_dtype", [torch.int64, torch.int16, torch.uint8, torch.float32, torch.bfloat16])
def test_positions_of_any_strides(device, position_dtype, layout):
    positions = LAYOUTS[layout](arange(3, 4, 5, dtype=position_dtype, device=device))
    assert_same_bits(posenc.encode(positions, 6), posenc.encode(60, 6, device=device).view(3, 4, 5, 6))


def test_expanded_positions_and_many_dimensions(device):
    expanded = arange(4, device=device)[None, :, None].expand(3, 4, 2)
    expected = posenc.encode(4, 6, device=device)[None, :, None].expand(3, 4, 2, 6)
    assert_same_bits(posenc.encode(expanded, 6), expected)
    assert_same_bits(
        posenc.encode(torch.tensor(7, device=device).expand(2, 3), 6)[1, 2], posenc.encode(8, 6)[7].to(device)
    )
    many = many_dimensions(torch.float64, device)
    assert_same_bits(posenc.encode(many, 2), posenc.encode(many.contiguous(), 2))
    assert_same_bits(
        posenc.encode(many, 2, out=many.new_empty(2, *many.shape).movedim(0, -1)),
        posenc.encode(many, 2, dtype=torch.float64),
    )


# ---- Defaults. ----


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_default_dtype_is_torchs_and_never_that_of_positions(device, dtype):
    torch.set_default_dtype(dtype)
    for call in (ops.encode, posenc.encode):
        assert call(3, 4, device=device).dtype == dtype
        for position_dtype in POSITION_DTYPES:
            assert call(arange(3, dtype=position_dtype, device=device), 4).dtype == dtype
    assert ops.encode(3, 4, device="meta").dtype == dtype


def test_the_default_device_is_honoured_by_the_functions():
    with torch.device("meta"):
        assert posenc.encode(3, 4).device.type == "meta"
        assert posenc.encode(3, 4, device="cpu").device.type == "cpu"
        assert posenc.encode(torch.arange(3, device="cpu"), 4).device.type == "cpu"
        assert posenc.encode(3, 4, out=torch.empty(3, 4, device="cpu")).device.type == "cpu"
        assert posenc.positional_encoding(3, 4).shape == (3, 4)
    torch.set_default_device("meta")
    assert posenc.encode(3, 4).device.type == "meta"
    torch.set_default_device(None)
    assert posenc.encode(3, 4).device.type == "cpu"


def test_the_device_argument_takes_what_torch_takes(device):
    for value in (device, torch.device(device)):
        assert posenc.encode(3, 4, device=value).device.type == device
        assert posenc.encode(arange(3, device=device), 4, device=value).device.type == device
        assert ops.encode(3, 4, device=value).device.type == device


def test_integers_of_numpy_are_integers():
    expected = posenc.encode(3, 4, 5)
    for kind in (numpy.int64, numpy.int32, numpy.uint8):
        assert_same_bits(posenc.encode(kind(3), kind(4), kind(5)), expected)
    assert_same_bits(posenc.encode(3, 4, base=numpy.float32(100.0)), posenc.encode(3, 4, base=100.0))
    assert_same_bits(posenc.encode(3, 4, base=100), posenc.encode(3, 4, base=100.0))


# ---- Writing into out. ----


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_out_decides_dtype_and_device(device, dtype):
    torch.set_default_dtype(torch.float64)
    out = torch.empty(3, 4, dtype=dtype, device=device)
    posenc.encode(3, 4, out=out)
    assert_same_bits(out, posenc.encode(3, 4, dtype=dtype, device=device))
    assert posenc.encode(3, 4, dtype=dtype, device=out.device, out=out) is out


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_nothing_beside_out_is_written(device, dtype):
    for call in (
        lambda out: posenc.encode(5, 6, 2, out=out),
        lambda out: posenc.encode(arange(5, start=2, device=device), 6, out=out),
    ):
        storage = torch.full((11, 13), 7.0, dtype=dtype, device=device)
        inside = torch.zeros(11, 13, dtype=torch.bool, device=device)
        inside[1:11:2, 1:13:2] = True
        call(storage[1:11:2, 1:13:2])
        assert bool((storage[~inside] == 7.0).all())
        assert_same_bits(storage[inside].view(5, 6), posenc.encode(5, 6, 2, dtype=dtype, device=device))


def out_calls(device: str) -> list:
    """Every way to write an encoding of 3 rows of 4 columns into a tensor."""
    positions = arange(3, device=device)
    return [
        lambda out: ops.encode.out(3, 4, out=out),
        lambda out: ops.encode.positions_out(positions, 4, out=out),
        lambda out: posenc.encode(3, 4, out=out),
        lambda out: posenc.encode(positions, 4, out=out),
    ]


def test_writing_raises_the_version_counter_once(device):
    for call in out_calls(device):
        out = torch.empty(3, 4, device=device)
        for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            before = out._version
            with context():
                call(out)
            assert out._version == before + 1, context


def test_writing_allocates_no_tensor(device):
    out = torch.empty(3, 8, device=device).t()[:4].t()
    for call in out_calls(device):
        assert memory_events(lambda call=call: call(out), device) == []


def test_a_saved_tensor_that_is_overwritten_is_noticed(device):
    x = torch.randn(3, 4, device=device, requires_grad=True)
    table = torch.randn(3, 4, device=device)
    y = (x * table).sum()
    posenc.encode(3, 4, out=table)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


# ---- Empty, fake and large. ----


def test_empty_results(device):
    for dtype in DTYPES:
        assert posenc.encode(0, 4, dtype=dtype, device=device).shape == (0, 4)
        assert posenc.encode(0, 4, 2**63 - 1, dtype=dtype, device=device).shape == (0, 4)
        assert posenc.encode(0, 2**62, dtype=dtype, device=device).shape == (0, 2**62)
        out = torch.empty(0, 4, dtype=dtype, device=device)
        assert posenc.encode(0, 4, out=out) is out
    for position_dtype in POSITION_DTYPES:
        assert posenc.encode(torch.empty(2, 0, dtype=position_dtype, device=device), 5).shape == (2, 0, 5)


def test_meta_tensors_have_the_shape_dtype_and_strides_of_real_ones():
    for dtype in (None, *DTYPES):
        for call in (
            lambda device, dtype=dtype: posenc.encode(5, 6, 3, dtype=dtype, device=device),
            lambda device, dtype=dtype: posenc.encode(torch.empty(2, 3, device=device).t(), 6, dtype=dtype),
            lambda device, dtype=dtype: ops.encode(torch.empty(0, dtype=torch.int8, device=device), 6, dtype=dtype),
        ):
            real, fake = call("cpu"), call("meta")
            assert fake.device.type == "meta"
            assert (fake.shape, fake.dtype, fake.stride()) == (real.shape, real.dtype, real.stride())
    out = torch.empty(3, 4, device="meta")
    assert posenc.encode(3, 4, out=out) is out
    assert posenc.encode(torch.arange(3, device="meta"), 4, out=out) is out
    assert posenc.encode(2**40, 2**20, device="meta").shape == (2**40, 2**20)


def test_strides_beyond_2_to_the_31_elements(device):
    storage = torch.empty(2**31 + 16, dtype=torch.float16, device=device)  # pages that are not touched cost nothing
    rows = storage.as_strided((2, 4), (2**31, 1))
    assert_same_bits(posenc.encode(2, 4, 9, out=rows), posenc.encode(2, 4, 9, dtype=torch.float16, device=device))
    columns = storage.as_strided((3, 2), (1, 2**31))
    assert_same_bits(posenc.encode(3, 2, out=columns), posenc.encode(3, 2, dtype=torch.float16, device=device))


def test_every_call_gives_a_tensor_of_its_own(device):
    first, second = posenc.encode(3, 4, device=device), posenc.encode(3, 4, device=device)
    assert first.data_ptr() != second.data_ptr()
    second.zero_()
    assert_same_bits(first, posenc.encode(3, 4, device=device))
