"""add, add_ and their overloads: the bits of the eager definition for every dtype, layout and way of calling."""

from __future__ import annotations

from collections.abc import Callable

import posenc
import pytest
import torch
from cases import (
    DTYPES,
    LAYOUTS,
    ORDERS,
    OTHER_CONVENTION,
    POSITION_DTYPES,
    READ_LAYOUTS,
    assert_same_bits,
    compute_dtype,
    definition,
    many_dimensions,
    memory_events,
    name_of,
    ops,
)
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

FACTORS = ((1.0, 1.0), (1.7, 1.0), (1.0, 0.1), (22.627416997969522, -0.3), (0.0, 1.0), (1.0, 0.0), (-1.0, 1e-8))


def random_x(*shape: int, dtype: torch.dtype, device: str) -> Tensor:
    """Normal values with a few special ones among them."""
    x = torch.randn(*shape, device=device).mul(3.0).to(dtype)
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 6e4, 1e-7], device=device).to(dtype)
    count = min(x.numel(), len(special))
    x.view(-1)[:count] = special[:count]
    return x


def expected_range(x: Tensor, offset: int = 0, seq_dim: int = -2, scale: float = 1.0, alpha: float = 1.0, **convention):
    """The definition of add for positions that count up from offset."""
    dim = seq_dim % x.dim()
    encoding = posenc.encode(
        x.size(dim), x.size(-1), offset, dtype=compute_dtype(x.dtype), device=x.device, **convention
    )
    shape = [1] * x.dim()
    shape[dim], shape[-1] = x.size(dim), x.size(-1)
    return definition(x, encoding.view(shape), scale, alpha)


def expected_positions(x: Tensor, positions: Tensor, scale: float = 1.0, alpha: float = 1.0, **convention) -> Tensor:
    """The definition of add for given positions."""
    positions = positions.expand(x.shape[:-1])
    encoding = posenc.encode(positions, x.size(-1), dtype=compute_dtype(x.dtype), **convention)
    return definition(x, encoding, scale, alpha)


def forms_of(name: str) -> list[Callable[..., Tensor]]:
    """Every way to call add with an offset ("range") or with positions: f(x, at, **kwargs) -> the sum."""

    def in_place(call: Callable[..., object]) -> Callable[..., Tensor]:
        def run(x: Tensor, at: object, **kwargs) -> Tensor:
            written = x.clone()
            result = call(written, at, **kwargs)
            assert result is None or result is written
            return written

        return run

    def into_out(call: Callable[..., object]) -> Callable[..., Tensor]:
        def run(x: Tensor, at: object, **kwargs) -> Tensor:
            out = torch.full_like(x, 9.0, memory_format=torch.contiguous_format)
            result = call(x, at, out=out, **kwargs)
            assert result is None or result is out
            return out

        return run

    overload, suffix = ("default", "out") if name == "range" else ("positions", "positions_out")
    return [
        posenc.add,
        ops.add,
        getattr(ops.add, overload),
        in_place(posenc.add_),
        in_place(ops.add_),
        in_place(getattr(ops.add_, overload)),
        into_out(posenc.add),
        into_out(ops.add),
        into_out(getattr(ops.add, suffix)),
    ]


@pytest.mark.parametrize("factors", FACTORS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_every_form_gives_the_bits_of_the_definition(device, dtype, factors):
    scale, alpha = factors
    x = random_x(3, 5, 7, dtype=dtype, device=device)
    positions = torch.tensor([[4, -1, 10**10, 0, 77]], device=device)
    for convention in ({}, OTHER_CONVENTION):
        kwargs = {"input_scale": scale, "alpha": alpha, **convention}
        expected = expected_range(x, 11, scale=scale, alpha=alpha, **convention)
        for number, form in enumerate(forms_of("range")):
            assert_same_bits(form(x, 11, **kwargs), expected, (number, kwargs))
        expected = expected_positions(x, positions, scale, alpha, **convention)
        for number, form in enumerate(forms_of("positions")):
            assert_same_bits(form(x, positions, **kwargs), expected, (number, kwargs))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_large_tensors_give_the_bits_of_the_definition(device, dtype):
    x = torch.randn(4, 300, 257, device=device).to(dtype)
    for order in ORDERS:
        actual = posenc.add(x, 10**6, input_scale=16.03, alpha=0.7, order=order)
        assert_same_bits(actual, expected_range(x, 10**6, scale=16.03, alpha=0.7, order=order), order)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=name_of)
def test_16_bit_sums_are_rounded_once(device, dtype):
    x = torch.randn(64, 256, device=device).to(dtype)
    twice = x + posenc.encode(64, 256, dtype=dtype, device=device)
    once = posenc.add(x)
    assert_same_bits(once, (x.float() + posenc.encode(64, 256, dtype=torch.float32, device=device)).to(dtype))
    assert not torch.equal(once, twice)


SHAPES = ((3, 5, 6), (2, 3, 4, 5, 6))


def positions_of_each_shape(shape: tuple[int, ...], device: str) -> list[Tensor]:
    """Positions that vary along all, some and one of the dimensions of tokens."""
    tokens = shape[:-1]
    some = [size if dim % 2 else 1 for dim, size in enumerate(tokens)]
    return [
        torch.randint(-99, 99, tuple(s), device=device) for s in (tokens, some, (tokens[0], *[1] * (len(tokens) - 1)))
    ]


@pytest.mark.parametrize("layout", READ_LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_x_of_any_strides(device, dtype, shape, layout):
    x = READ_LAYOUTS[layout](random_x(*shape, dtype=dtype, device=device))
    before = x.clone()
    for scale, alpha in ((1.0, 1.0), (1.7, 0.3)):
        kwargs = {"input_scale": scale, "alpha": alpha}
        for seq_dim in (-2, 0):
            actual = posenc.add(x, 3, seq_dim=seq_dim, **kwargs)
            assert_same_bits(actual, expected_range(x, 3, seq_dim, scale, alpha), seq_dim)
            assert actual.stride() == torch.empty_like(x).stride()
        for positions in positions_of_each_shape(shape, device):
            actual = posenc.add(x, positions=positions, **kwargs)
            assert_same_bits(actual, expected_positions(x, positions, scale, alpha), positions.shape)
            assert actual.stride() == torch.empty_like(x).stride()
    assert_same_bits(x, before)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_in_place_and_out_take_any_strides_without_overlap(device, dtype, shape, layout):
    x = random_x(*shape, dtype=dtype, device=device)
    calls = [({"offset": 3}, expected_range(x, 3)), ({"seq_dim": 0}, expected_range(x, seq_dim=0))]
    for positions in positions_of_each_shape(shape, device):
        for position_layout in LAYOUTS.values():
            strided = position_layout(positions) if positions.dim() > 1 else positions
            calls.append(({"positions": strided}, expected_positions(x, positions)))
    for kwargs, expected in calls:
        assert_same_bits(posenc.add_(LAYOUTS[layout](x), **kwargs), expected)
        for other in LAYOUTS.values():
            out = LAYOUTS[layout](torch.full_like(x, 9.0))
            assert_same_bits(posenc.add(other(x), out=out, **kwargs), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_nothing_beside_the_result_is_written(device, dtype):
    x = random_x(4, 5, dtype=dtype, device=device)
    inside = torch.zeros(9, 11, dtype=torch.bool, device=device)
    inside[1:9:2, 1:11:2] = True
    for kwargs in ({"offset": 2}, {"positions": torch.arange(2, 6, device=device)}):
        for call in (
            lambda view, kwargs=kwargs: posenc.add_(view.copy_(x), **kwargs),
            lambda view, kwargs=kwargs: posenc.add(x, out=view, **kwargs),
        ):
            storage = torch.full((9, 11), 7.0, dtype=dtype, device=device)
            call(storage[1:9:2, 1:11:2])
            assert bool((storage[~inside] == 7.0).all())
            assert_same_bits(storage[inside].view(4, 5), expected_range(x, 2))


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_positions_count_up_along_any_dimension(device, rank):
    shape = (3, 2, 4, 5)[: rank - 1]
    for dtype in DTYPES:
        x = random_x(*shape, 6, dtype=dtype, device=device)
        for dim in range(rank - 1):
            for seq_dim in (dim, dim - rank):
                expected = expected_range(x, -2, seq_dim=dim)
                assert_same_bits(posenc.add(x, -2, seq_dim=seq_dim), expected, (dtype, seq_dim))
                assert_same_bits(posenc.add_(x.clone(), -2, seq_dim=seq_dim), expected, (dtype, seq_dim))
                assert_same_bits(posenc.add(x, -2, seq_dim=seq_dim, out=torch.empty_like(x)), expected)
                assert_same_bits(ops.add(x, -2, seq_dim=seq_dim), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_many_dimensions_that_cannot_be_merged(device, dtype):
    x = many_dimensions(dtype, device)
    for seq_dim in (-2, 0, 5):
        assert_same_bits(posenc.add(x, 3, seq_dim=seq_dim), expected_range(x, 3, seq_dim=seq_dim), seq_dim)
    positions = many_dimensions(torch.float64, device)[..., 0]
    assert_same_bits(posenc.add(x, positions=positions), expected_positions(x, positions))
    assert_same_bits(posenc.add_(x.clone(), positions=positions), expected_positions(x, positions))


@pytest.mark.parametrize(
    "shape", [(), (5,), (3, 5), (3, 1), (1, 5), (1, 1), (1,), (2, 3, 5), (2, 1, 5), (2, 3, 1)], ids=str
)
def test_positions_broadcast_to_the_tokens(device, shape):
    positions = torch.randint(-100, 100, shape, device=device)
    for dtype in DTYPES:
        x = random_x(2, 3, 5, 4, dtype=dtype, device=device)
        expected = expected_positions(x, positions)
        assert_same_bits(ops.add(x, positions), expected, dtype)  # also a single position, given to every token
        assert_same_bits(ops.add.positions_out(x, positions, out=x.clone()) or x, x)
        if positions.numel() > 1 or positions.dim() > 1:
            assert_same_bits(posenc.add(x, positions=positions), expected, dtype)
            assert_same_bits(posenc.add(x, positions), expected, dtype)
            assert_same_bits(posenc.add_(x.clone(), positions=positions), expected, dtype)


@pytest.mark.parametrize("position_dtype", POSITION_DTYPES, ids=name_of)
def test_positions_of_every_dtype(device, position_dtype):
    positions = torch.tensor([3, 0, 100, 7], device=device).to(position_dtype)
    x = random_x(2, 4, 6, dtype=torch.float32, device=device)
    assert_same_bits(posenc.add(x, positions=positions), expected_positions(x, positions.to(torch.float64)))
    assert_same_bits(posenc.add_(x.clone(), positions=positions), expected_positions(x, positions.to(torch.float64)))


def test_fractional_and_strided_positions(device):
    positions = torch.randn(8, 6, dtype=torch.float64, device=device).mul(1000)[::2, ::2].t()
    x = random_x(3, 4, 5, dtype=torch.float32, device=device)
    assert_same_bits(posenc.add(x, positions=positions), expected_positions(x, positions))
    for position_dtype in (torch.float32, torch.float16, torch.bfloat16):
        p = positions.to(position_dtype)
        assert_same_bits(posenc.add(x, positions=p), expected_positions(x, p), position_dtype)


def test_positions_that_are_not_finite_disturb_no_other_row(device):
    positions = torch.tensor([1.0, float("nan"), 2.0, float("inf")], device=device)
    for dtype in DTYPES:
        x = torch.randn(2, 4, 7, device=device).to(dtype)
        for odd in ("sin", "zero"):
            actual = posenc.add(x, positions=positions, odd=odd)
            assert_same_bits(actual, expected_positions(x, positions, odd=odd), (dtype, odd))
            assert bool(actual[:, [1, 3], :6].isnan().all())
            assert bool(actual[:, [0, 2]].isfinite().all())


def test_a_tensor_of_one_element_means_positions(device):
    x = torch.randn(1, 1, 6, device=device)
    expected = expected_range(x, 5)
    for call in (ops.add, posenc.add):
        assert_same_bits(call(x, torch.tensor([5], device=device)), expected)
        assert_same_bits(call(x, torch.tensor(5, device=device)), expected)
    several = torch.randn(1, 3, 6, device=device)
    assert_same_bits(
        ops.add(several, torch.tensor([5], device=device)),
        expected_positions(several, torch.tensor([[5, 5, 5]], device=device)),
    )


def test_a_position_for_each_sequence(device):
    x = torch.randn(4, 1, 6, device=device)
    positions = torch.tensor([[3], [10], [0], [700]], device=device)
    actual = posenc.add(x, positions=positions)
    for row, position in enumerate([3, 10, 0, 700]):
        assert_same_bits(actual[row], posenc.add(x[row], position))


def test_the_result_is_fresh_even_where_nothing_changes(device):
    for x in (torch.zeros(2, 3, 4, device=device), torch.zeros(2, 0, 4, device=device)):
        result = posenc.add(x, alpha=0.0)
        assert result is not x
        assert x.numel() == 0 or result.data_ptr() != x.data_ptr()


def test_out_may_be_x_itself(device):
    for dtype in DTYPES:
        x = random_x(3, 4, 5, dtype=dtype, device=device)
        expected = expected_range(x, 2, scale=1.5)
        assert_same_bits(posenc.add(x, 2, input_scale=1.5, out=x), expected)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 0, 4), (0, 0, 4), (0, 4), (2, 0, 3, 1)], ids=str)
def test_empty_tensors(device, shape):
    for dtype in DTYPES:
        x = torch.empty(shape, dtype=dtype, device=device)
        assert posenc.add(x, 3).shape == shape
        assert posenc.add_(x, 3) is x
        assert posenc.add(x, out=torch.empty_like(x)).shape == shape
        positions = torch.zeros(shape[:-1], dtype=torch.int64, device=device)
        assert posenc.add(x, positions=positions).shape == shape
        assert posenc.add_(x, positions=positions) is x


@pytest.mark.parametrize("layout", READ_LAYOUTS)
@pytest.mark.parametrize("shape", [(3, 5, 6), (1, 5, 6), (3, 1, 1), (2, 3, 5, 6), (4, 6)], ids=str)
def test_real_fake_and_meta_results_have_the_strides_of_empty_like(device, shape, layout):
    for dtype in (torch.float32, torch.float16):
        x = READ_LAYOUTS[layout](torch.zeros(shape, dtype=dtype, device=device))
        meta = torch.empty_strided(x.shape, x.stride(), dtype=dtype, device="meta")
        with FakeTensorMode() as mode:
            fake = mode.from_tensor(x)
        positions = torch.zeros(shape[-2], dtype=torch.int64, device=device)
        for call in (lambda t: posenc.add(t, 1), lambda t, p=positions: ops.add(t, p.to(t.device))):
            expected = torch.empty_like(x).stride()
            assert call(x).stride() == expected
            assert call(meta).stride() == expected
            with mode:
                result = ops.add(fake, 1)
            assert (result.stride(), result.dtype, result.device) == (expected, dtype, x.device)


def test_meta_in_place_and_out_forms(device):
    x = torch.empty(2, 3, 4, device="meta")
    positions = torch.empty(3, dtype=torch.int64, device="meta")
    assert posenc.add_(x) is x
    assert posenc.add_(x, positions=positions) is x
    out = torch.empty_like(x)
    assert posenc.add(x, out=out) is out
    assert posenc.add(x, positions=positions, out=out) is out


def writing_calls(device: str) -> list[Callable[[Tensor], object]]:
    """Every way to write a sum into a tensor of shape (2, 3, 8)."""
    x = torch.randn(2, 3, 8, device=device)
    positions = torch.arange(3, device=device)
    return [
        lambda y: ops.add_.default(y, 1),
        lambda y: ops.add_.positions(y, positions),
        lambda y: ops.add.out(x, 1, out=y),
        lambda y: ops.add.positions_out(x, positions, out=y),
        lambda y: posenc.add_(y, 1),
        lambda y: posenc.add_(y, positions=positions),
        lambda y: posenc.add(x, 1, out=y),
        lambda y: posenc.add(x, positions=positions, out=y),
    ]


def test_writing_raises_the_version_counter_once(device):
    for call in writing_calls(device):
        y = torch.randn(2, 3, 8, device=device)
        for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            before = y._version
            with context():
                call(y)
            assert y._version == before + 1, context


def test_writing_allocates_no_tensor(device):
    for call in writing_calls(device):
        for layout in LAYOUTS.values():
            y = layout(torch.randn(2, 3, 8, device=device))
            assert memory_events(lambda call=call, y=y: call(y), device) == []


def test_a_saved_tensor_that_is_overwritten_is_noticed(device):
    for call in writing_calls(device):
        weight = torch.randn(2, 3, 8, device=device, requires_grad=True)
        y = torch.randn(2, 3, 8, device=device)
        loss = (weight * y).sum()
        call(y)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_strides_beyond_2_to_the_31_elements(device):
    storage = torch.empty(2**31 + 64, dtype=torch.float16, device=device)  # pages that are not touched cost nothing
    for strides in ((2**31, 8, 1), (8, 2**31, 1), (16, 4, 2**30)):
        view = storage.as_strided((2, 2, 2), strides)
        view.copy_(torch.randn(2, 2, 2, device=device))
        expected = expected_range(view.contiguous(), 5)
        assert_same_bits(posenc.add(view, 5, out=torch.empty(2, 2, 2, dtype=torch.float16, device=device)), expected)
        assert_same_bits(posenc.add_(view, 5), expected)
