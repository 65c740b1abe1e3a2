"""The numerical contract, against exact values, and what follows from it."""

from __future__ import annotations

import random
from fractions import Fraction

import exact
import posenc
import pytest
import torch
from cases import DTYPES, INT64_MAX, INT64_MIN, LAYOUTS, ODDS, ORDERS, assert_same_bits, name_of
from exact import Convention
from torch import Tensor

WIDTHS = (1, 2, 3, 7, 8)

HAND_PICKED = (
    *(0, 1, -1, 2, 3, 31, 32, 33, 100, 255, 256, 257, 2047, 2048, 65_535, 65_536, -70_000, 10**6, -(10**9)),
    *(sign * (2**n + d) for n in (31, 32, 53, 62) for d in (-1, 0, 1) for sign in (1, -1)),
    *(INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, 1_700_000_000_123_456_789),
)

FRACTIONS = (
    *(0.5, 0.1, 1 / 3, -0.1, 1.5, 2.75, 123_456.789, -98_765.4321, 1e-3, 1e-8, 1e-16, 1e-30, -1e-300),
    *(5e-324, -5e-324, 1e-310, 2.2250738585072014e-308, 2.0**31 + 0.5, 2.0**52 + 0.5, -(2.0**51) - 0.25),
    *(1e15 + 0.125, 1e18, 2.0**63, -(2.0**63), 1.5 * 2.0**63, 1.8e19, 2.0**64, -(2.0**64)),
)


def random_positions(count: int) -> list[int]:
    """Integers of both signs and every magnitude up to 2^63."""
    rng = random.Random(20170612)
    return [rng.choice((-1, 1)) * rng.getrandbits(rng.randint(1, 63)) for _ in range(count)]


def check(positions: list, d_model: int, convention: Convention, dtype: torch.dtype, device: str = "cpu") -> None:
    """Encodes ``positions`` (all int or all float) and asserts the contract."""
    position_dtype = torch.int64 if isinstance(positions[0], int) else torch.float64
    tensor = torch.tensor(positions, dtype=position_dtype, device=device)
    result = posenc.encode(tensor, d_model, dtype=dtype, **vars(convention))
    exact.assert_accurate(result, exact.encoding(positions, d_model, convention), (convention, d_model, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("d_model", WIDTHS)
def test_any_int64_position_meets_the_bound(device, d_model, dtype):
    check([*HAND_PICKED, *random_positions(200)], d_model, Convention(), dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_every_column_of_a_wide_encoding_meets_the_bound(device, dtype):
    check([0, 1, -5, 511, 4096, 131_071, 10**6, 2**53 + 1, INT64_MIN, INT64_MAX], 513, Convention(), dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("odd", ODDS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_and_odd_policy_meets_the_bound(device, order, odd, dtype):
    for d_model in (*WIDTHS, 9):
        for shift in (0.0, 1.0, -0.5):
            denominator = exact.effective_width(d_model, odd) - 2 * shift
            if denominator != 0.0 or d_model <= 2:
                check(
                    list(HAND_PICKED[:24]), d_model, Convention(freq_shift=shift, order=order, odd=odd), dtype, device
                )


@pytest.mark.parametrize("base", [5e-324, 1e-12, 1e-3, 0.5, 1.0, 1.0000000001, 2.0, 100.0, 1e5, 1e20, 1e300, 1.7e308])
def test_any_base_meets_the_bound(device, base):
    for dtype in DTYPES:
        check([*HAND_PICKED, *random_positions(20)], 7, Convention(base=base), dtype, device)
        check(list(FRACTIONS), 8, Convention(base=base), dtype, device)


@pytest.mark.parametrize(
    "scale", [-1.0, 0.0, -0.0, 0.1, 1e-3, -1e-9, 1e-300, 5e-324, 1000.0, 2.0**-64, 0.3, 1.75, 1e18, -1e300, 1.7e308]
)
def test_any_position_scale_meets_the_bound(device, scale):
    for dtype in DTYPES:
        check([*HAND_PICKED, *random_positions(20)], 6, Convention(position_scale=scale), dtype, device)
        check(list(FRACTIONS), 7, Convention(position_scale=scale), dtype, device)


@pytest.mark.parametrize(
    "freq_shift", [1.0, 0.5, -3.0, 0.1, 3.999999, 4.0000001, -1e-300, 100.0, 1e15, 1e300, -1.7e308, 5e-324]
)
def test_any_freq_shift_meets_the_bound(device, freq_shift):
    for dtype in DTYPES:
        for d_model in (7, 8):
            check(list(HAND_PICKED), d_model, Convention(freq_shift=freq_shift), dtype, device)
            check(list(FRACTIONS), d_model, Convention(freq_shift=freq_shift), dtype, device)


def test_a_denominator_of_zero_is_allowed_while_only_pair_0_exists(device):
    for d_model, odd, shift in ((2, "sin", 1.0), (1, "sin", 0.5), (1, "cut", 1.0), (3, "zero", 1.0), (1, "zero", 0.0)):
        check(list(HAND_PICKED), d_model, Convention(freq_shift=shift, odd=odd), torch.float64, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_fractional_positions_meet_the_bound(device, dtype):
    rng = random.Random(1)
    random_ones = [rng.choice((-1, 1)) * rng.random() * 2.0 ** rng.randint(-70, 63) for _ in range(200)]
    for d_model in WIDTHS:
        check([*FRACTIONS, *random_ones], d_model, Convention(), dtype, device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=name_of)
def test_16_bit_positions_are_taken_at_their_exact_value(device, dtype):
    positions = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype).to(device)
    actual = posenc.encode(positions, 5, dtype=torch.float32)
    assert_same_bits(actual, posenc.encode(positions.double(), 5, dtype=torch.float32))


def test_float32_positions_are_taken_at_their_exact_value(device):
    values = [0.1, 1 / 3, 1e-45, -1e-40, 123_456.79, 3.0e19, -2.5e18, 16_777_217.0, 1e-20]
    positions = torch.tensor(values, dtype=torch.float32, device=device)
    exact_values = exact.encoding([Fraction(v) for v in positions.tolist()], 7)
    for dtype in DTYPES:
        exact.assert_accurate(posenc.encode(positions, 7, dtype=dtype), exact_values, dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=name_of)
def test_16_bit_results_are_rounded_once(device, dtype):
    """A rounding by way of float32 would exceed this bound in about one element of 30,000."""
    double = posenc.encode(4096, 512, dtype=torch.float64, device=device).cpu()
    result = posenc.encode(4096, 512, dtype=dtype, device=device).cpu()
    allowed = exact.half_ulp(result) + 2 * exact.ERROR_BOUND  # the double is an approximation too
    assert int(((result.double() - double).abs() > allowed).sum()) == 0


def test_float64_results_never_exceed_1(device):
    for offset in (0, 10**6, 10**12, -(2**62)):
        result = posenc.encode(20_000, 512, offset, dtype=torch.float64, device=device)
        assert float(result.abs().max()) <= 1.0, offset


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_far_angles_stay_finite_and_within_1(device, dtype):
    positions = torch.tensor([1e20, -1e100, 1.7e308, -1.7e308, 2.0**64 + 4096.0], dtype=torch.float64, device=device)
    for base in (10000.0, 1e-12):
        result = posenc.encode(positions, 8, base=base, position_scale=1e10, dtype=dtype)
        assert bool(result.isfinite().all())
        assert float(result.abs().max()) <= 1.0
        for i in range(5):
            alone = posenc.encode(positions[i : i + 1], 8, base=base, position_scale=1e10, dtype=dtype)
            assert_same_bits(result[i : i + 1], alone, (base, i))


# ---- Bits do not depend on how a value was asked for. ----


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("offset", [0, -37, 5, 10**6, 2**53, INT64_MIN, INT64_MAX - 100])
def test_slices_equal_sub_calls(device, offset, dtype):
    whole = posenc.encode(100, 33, offset, dtype=dtype, device=device)
    for begin, end in ((0, 100), (0, 1), (7, 8), (31, 64), (99, 100), (40, 40)):
        part = posenc.encode(end - begin, 33, offset + begin, dtype=dtype, device=device)
        assert_same_bits(part, whole[begin:end], (begin, end))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_step_by_step_equals_the_whole(device, dtype):
    whole = posenc.encode(70, 12, -35, dtype=dtype, device=device)
    steps = [posenc.encode(1, 12, p, dtype=dtype, device=device) for p in range(-35, 35)]
    assert_same_bits(torch.cat(steps), whole)
    one_by_one = [posenc.encode(torch.tensor(p, device=device), 12, dtype=dtype) for p in range(-35, 35)]
    assert_same_bits(torch.stack(one_by_one), whole)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_positions_in_any_order_equal_the_range(device, dtype):
    order = torch.randperm(500).to(device)
    whole = posenc.encode(500, 20, -250, dtype=dtype, device=device)
    assert_same_bits(posenc.encode(order - 250, 20, dtype=dtype), whole[order])
    assert_same_bits(posenc.encode((order - 250).view(5, 100), 20, dtype=dtype), whole[order].view(5, 100, 20))


def is_sine(d_model: int, order: str, odd: str) -> Tensor:
    """For each column whether it changes its sign with the position's."""
    return torch.tensor([kind == "sin" for kind, _ in exact.columns(d_model, order, odd)])


@pytest.mark.parametrize("odd", ODDS)
@pytest.mark.parametrize("order", ORDERS)
def test_negative_positions_mirror_exactly(device, order, odd):
    positions = torch.tensor([p for p in HAND_PICKED if p > 0], device=device)
    for dtype in DTYPES:
        plus = posenc.encode(positions, 9, order=order, odd=odd, dtype=dtype)
        minus = posenc.encode(-positions, 9, order=order, odd=odd, dtype=dtype)
        assert_same_bits(minus, torch.where(is_sine(9, order, odd).to(device), -plus, plus), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_position_scale_minus_1_equals_mirrored_positions(device, dtype):
    positions = torch.tensor([p for p in HAND_PICKED if p != INT64_MIN], device=device)
    for odd in ODDS:
        mirrored = posenc.encode(-positions, 9, odd=odd, dtype=dtype)
        assert_same_bits(posenc.encode(positions, 9, position_scale=-1.0, odd=odd, dtype=dtype), mirrored, odd)
    smallest = torch.tensor([INT64_MIN], device=device)
    mirror_image = posenc.encode(torch.tensor([2.0**63], dtype=torch.float64, device=device), 9, dtype=dtype)
    assert_same_bits(posenc.encode(smallest, 9, position_scale=-1.0, dtype=dtype), mirror_image)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_equal_positions_of_any_dtype_give_equal_bits(device, dtype):
    integers = torch.tensor([p for p in HAND_PICKED if abs(p) <= 2**53 or p == INT64_MIN], device=device)
    expected = posenc.encode(integers, 10, position_scale=0.7, dtype=dtype)
    assert_same_bits(posenc.encode(integers.double(), 10, position_scale=0.7, dtype=dtype), expected)
    small = torch.arange(-128, 128, device=device)
    expected = posenc.encode(small, 10, dtype=dtype)
    for position_dtype in (torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16, torch.float32):
        assert_same_bits(posenc.encode(small.to(position_dtype), 10, dtype=dtype), expected, position_dtype)
    natural = torch.arange(256, device=device)
    expected = posenc.encode(natural, 10, dtype=dtype)
    for position_dtype in (torch.uint8, torch.uint16, torch.uint32):
        assert_same_bits(posenc.encode(natural.to(position_dtype), 10, dtype=dtype), expected, position_dtype)


@pytest.mark.parametrize("d_model", [1, 2, 5, 8, 33])
@pytest.mark.parametrize("odd", ODDS)
def test_order_only_moves_columns(device, odd, d_model):
    width = exact.effective_width(d_model, odd)
    pairs = (d_model + 1) // 2
    for dtype in DTYPES:
        # An even width with the same frequencies holds both functions of every pair.
        shift = pairs - width / 2
        table = posenc.encode(50, 2 * pairs, -20, freq_shift=shift, dtype=dtype, device=device)
        if odd == "zero":
            table = torch.cat([table, torch.zeros_like(table[:, :1])], 1)
        for order in ORDERS:
            source = {"sin": 0, "cos": 1}
            index = [
                2 * pairs if kind == "zero" else 2 * k + source[kind] for kind, k in exact.columns(d_model, order, odd)
            ]
            actual = posenc.encode(50, d_model, -20, order=order, odd=odd, dtype=dtype, device=device)
            assert_same_bits(actual, table[:, index], (order, dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_number_of_threads_changes_nothing(dtype):
    positions = torch.randint(-(2**62), 2**62, (700,))
    results = []
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        x = torch.full((3, 700, 129), 0.25, dtype=dtype)
        results.append(
            [
                posenc.encode(700, 129, 10**12, dtype=dtype),
                posenc.encode(positions, 129, dtype=dtype),
                posenc.add(x, 10**12, alpha=0.3),
                posenc.add(x, positions=positions),
            ]
        )
    for other in results[1:]:
        for actual, expected in zip(other, results[0], strict=True):
            assert_same_bits(actual, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_strides_of_out_change_nothing(device, dtype, layout):
    out = LAYOUTS[layout](torch.full((40, 17), 9.0, dtype=dtype, device=device))
    assert_same_bits(posenc.encode(40, 17, 3, out=out), posenc.encode(40, 17, 3, dtype=dtype, device=device))
    expected = posenc.encode(24, 17, dtype=dtype, device=device).view(2, 3, 4, 17)
    for position_layout in LAYOUTS.values():
        positions = position_layout(torch.arange(24, device=device).view(2, 3, 4))
        out = LAYOUTS[layout](torch.full((2, 3, 4, 17), 9.0, dtype=dtype, device=device))
        assert_same_bits(posenc.encode(positions, 17, out=out), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_every_device_gives_the_bits_of_the_cpu(device, dtype):
    positions = torch.tensor([*HAND_PICKED, *random_positions(100)])
    for order in ORDERS:
        actual = posenc.encode(positions.to(device), 67, order=order, dtype=dtype)
        assert_same_bits(actual, posenc.encode(positions, 67, order=order, dtype=dtype), order)
    assert_same_bits(posenc.encode(500, 67, dtype=dtype, device=device), posenc.encode(500, 67, dtype=dtype))


# ---- Values that are not finite, and zero. ----


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("order", ORDERS)
def test_positions_that_are_not_finite_give_nan_rows_and_disturb_no_other(device, order, dtype):
    values = [1.0, float("nan"), 2.5, float("inf"), -3.0, float("-inf"), 1e18]
    finite = torch.tensor([0, 2, 4, 6], device=device)
    for odd in ODDS:
        for position_dtype in (torch.float64, torch.float32):
            positions = torch.tensor(values, dtype=position_dtype, device=device)
            result = posenc.encode(positions, 7, order=order, odd=odd, dtype=dtype)
            assert_same_bits(result[finite], posenc.encode(positions[finite], 7, order=order, odd=odd, dtype=dtype))
            rows = result[torch.tensor([1, 3, 5], device=device)]
            assert bool(rows[:, :6].isnan().all())
            if odd == "zero":
                assert_same_bits(result[:, 6], torch.zeros(7, dtype=dtype, device=device), odd)
            else:
                assert bool(rows[:, 6].isnan().all())


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("scale", [1.0, -1.0, 0.3, -1e300, 0.0, -0.0])
def test_the_sine_at_zero_is_plus_zero(device, scale, dtype):
    expected = torch.tensor([0.0, 1.0, 0.0, 1.0, 0.0], dtype=dtype, device=device)
    assert_same_bits(posenc.encode(1, 5, position_scale=scale, dtype=dtype, device=device)[0], expected)
    for position_dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        zeros = torch.tensor([0.0, -0.0], dtype=position_dtype, device=device)
        assert_same_bits(
            posenc.encode(zeros, 5, position_scale=scale, dtype=dtype), expected.expand(2, 5), position_dtype
        )
