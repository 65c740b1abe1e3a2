"""Bad arguments: the type of the exception, its text, nothing written, and the next good call works."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import posenc
import pytest
import torch
from cases import INT64_MAX, INT64_MIN, assert_same_bits, ops
from torch import Tensor

INF, NAN = float("inf"), float("nan")
ORDERS_TEXT = '"interleaved", "interleaved_cos_first", "split" or "split_cos_first"'
DTYPES_TEXT = "float64, float32, bfloat16 or float16"

#: Arguments of the convention, for a width of 8 unless one is given: what is refused, and how it reads.
BAD_CONVENTIONS: list[tuple[dict, str]] = [
    *(({"d_model": d}, f"d_model must be at least 1, but got {d}.") for d in (0, -1, INT64_MIN)),
    *(
        ({"base": base}, f"base must be finite and greater than 0, but got {text}.")
        for base, text in ((0.0, "0"), (-0.0, "-0"), (-2.5, "-2.5"), (INF, "inf"), (-INF, "-inf"), (NAN, "nan"))
    ),
    *(
        ({name: value}, f"{name} must be finite, but got {text}.")
        for name in ("freq_shift", "position_scale")
        for value, text in ((INF, "inf"), (-INF, "-inf"), (NAN, "nan"))
    ),
    *(({"order": order}, f'order must be {ORDERS_TEXT}, but got "{order}".') for order in ("mixed", "", "Split")),
    *(({"odd": odd}, f'odd must be "sin", "zero", "cut" or "error", but got "{odd}".') for odd in ("even", "", "SIN")),
    ({"d_model": 7, "odd": "error"}, 'd_model must be even with odd="error", but got 7. Use odd="sin"'),
    *(
        (
            {"d_model": d, "odd": odd, "freq_shift": shift},
            "freq_shift must leave a denominator d_model - 2 * freq_shift other than 0, "
            f"but got {shift:g} with d_model {d}.",
        )
        for d, odd, shift in (
            (8, "sin", 4.0),
            (4, "error", 2.0),
            (7, "sin", 3.5),
            (7, "zero", 3.0),
            (7, "cut", 4.0),
            (3, "cut", 2.0),
        )
    ),
]


def refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    """Asserts that a call raises exactly ``error`` with a message that starts with ``text`` and has the usual form."""
    with pytest.raises(error) as caught:
        call()
    assert caught.type is error, f"{caught.type.__name__} instead of {error.__name__}: {caught.value}"
    assert str(caught.value).startswith(text), str(caught.value)
    first = str(caught.value).split("\n")[0]
    assert re.match(r"\w+: \w[\w +]* must .*, but got .*\.", first), first


def encode_calls(kwargs: dict, device: str) -> list[tuple[Callable[[], object], Tensor | None]]:
    """The ways to call encode with these arguments, and what each might have written."""
    kwargs = {"d_model": 8, **kwargs}
    width = max(1, min(kwargs["d_model"], 64))
    positions = torch.arange(3, device=device)
    out = torch.full((3, width), 9.0, device=device)
    calls: list[tuple[Callable[[], object], Tensor | None]] = []
    for f in (posenc.encode, ops.encode, ops.encode.default):
        calls += [(lambda f=f: f(3, device=device, **kwargs), None), (lambda f=f: f(3, device="meta", **kwargs), None)]
    for f in (posenc.encode, ops.encode, ops.encode.positions):
        calls += [(lambda f=f: f(positions, **kwargs), None), (lambda f=f: f(positions.to("meta"), **kwargs), None)]
    for f in (posenc.encode, ops.encode, ops.encode.out):
        calls.append((lambda f=f: f(3, out=out, **kwargs), out))
    for f in (posenc.encode, ops.encode, ops.encode.positions_out):
        calls.append((lambda f=f: f(positions, out=out, **kwargs), out))
    return calls


def add_calls(x: Tensor, kwargs: dict) -> list[tuple[Callable[[], object], str, Tensor | None]]:
    """The ways to call add with these arguments, the name of the operator, and what each might have written."""
    positions = torch.arange(x.size(-2), device=x.device)
    out = torch.full_like(x, 9.0)
    calls: list[tuple[Callable[[], object], str, Tensor | None]] = []
    for t in (x, x.to("meta")):
        calls += [(lambda f=f, t=t: f(t, **kwargs), "add", None) for f in (posenc.add, ops.add, ops.add.default)]
        for f in (posenc.add, ops.add, ops.add.positions):
            calls.append((lambda f=f, t=t: f(t, positions=positions.to(t.device), **kwargs), "add", None))
    calls += [(lambda f=f: f(x, **kwargs), "add_", x) for f in (posenc.add_, ops.add_, ops.add_.default)]
    for f in (posenc.add_, ops.add_, ops.add_.positions):
        calls.append((lambda f=f: f(x, positions=positions, **kwargs), "add_", x))
    calls += [(lambda f=f: f(x, out=out, **kwargs), "add", out) for f in (posenc.add, ops.add, ops.add.out)]
    for f in (posenc.add, ops.add, ops.add.positions_out):
        calls.append((lambda f=f: f(x, positions=positions, out=out, **kwargs), "add", out))
    return calls


@pytest.mark.parametrize(("kwargs", "text"), BAD_CONVENTIONS, ids=str)
def test_encode_refuses_a_bad_convention(device, kwargs, text):
    for number, (call, written) in enumerate(encode_calls(kwargs, device)):
        before = None if written is None else written.clone()
        refused(call, ValueError, f"encode: {text}")
        if written is not None:
            assert_same_bits(written, before, number)
    assert_same_bits(posenc.encode(3, 8, device=device), posenc.encode(torch.arange(3, device=device), 8))


@pytest.mark.parametrize(("kwargs", "text"), [c for c in BAD_CONVENTIONS if c[0].get("d_model", 1) > 0], ids=str)
def test_add_refuses_a_bad_convention(device, kwargs, text):
    kwargs = dict(kwargs)
    x = torch.randn(2, 3, kwargs.pop("d_model", 8), device=device)
    for number, (call, op, written) in enumerate(add_calls(x, kwargs)):
        before = None if written is None else written.clone()
        refused(call, ValueError, f"{op}: {text}")
        if written is not None:
            assert_same_bits(written, before, number)
    assert_same_bits(posenc.add(x), x + posenc.encode(3, x.size(-1), device=device))


def check_cases(cases: list[tuple[Callable[[], object], type[Exception], str]], *unchanged: Tensor) -> None:
    """Asserts each refusal, and that no tensor of ``unchanged`` is written."""
    before = [t.clone() for t in unchanged]
    for call, error, text in cases:
        refused(call, error, text)
        for tensor, value in zip(unchanged, before, strict=True):
            assert_same_bits(tensor, value, text)


def test_encode_refuses_a_range_that_is_none(device):
    out = torch.full((3, 8), 9.0, device=device)
    cases = []
    for n in (-1, -5, INT64_MIN):
        text = f"encode: seq_len must be at least 0, but got {n}."
        for f in (posenc.encode, ops.encode, ops.encode.default):
            cases += [
                (lambda f=f, n=n: f(n, 8, device=device), ValueError, text),
                (lambda f=f, n=n: f(n, 8, device="meta"), ValueError, text),
            ]
        cases.append((lambda n=n: posenc.encode(n, 8, out=out), ValueError, text))
        cases.append((lambda n=n: ops.encode.out(n, 8, out=out), ValueError, text))
    for n, offset in ((3, INT64_MAX - 2), (1, INT64_MAX), (INT64_MAX, 1)):
        text = f"encode: offset + seq_len must be at most 2^63 - 1, but got offset {offset} and seq_len {n}."
        for f in (posenc.encode, ops.encode, ops.encode.default):
            cases.append((lambda f=f, n=n, offset=offset: f(n, 8, offset, device=device), ValueError, text))
        cases.append((lambda n=n, offset=offset: posenc.encode(n, 8, offset, device="meta"), ValueError, text))
        cases.append((lambda n=n, offset=offset: posenc.encode(n, 8, offset, out=out), ValueError, text))
    check_cases(cases, out)
    assert posenc.encode(3, 8, INT64_MAX - 3, device=device).shape == (3, 8)


@pytest.mark.parametrize("value", [2**63, 2**200, -(2**63) - 1])
def test_integers_beyond_int64_are_refused_as_values(value):
    x = torch.zeros(2, 3, 4)
    for call, text in (
        (lambda: posenc.encode(value, 4), "encode: seq_len must "),
        (lambda: posenc.encode(3, value), "encode: d_model must "),
        (lambda: posenc.encode(3, 4, value), "encode: offset "),
        (lambda: posenc.add(x, value), "add: offset "),
        (lambda: posenc.add_(x, value), "add_: offset "),
    ):
        refused(call, ValueError, text)
    assert_same_bits(x, torch.zeros(2, 3, 4))


def test_integers_beyond_float64_are_refused_as_values():
    refused(lambda: posenc.encode(3, 4, base=10**400), ValueError, "encode: base must be finite")
    refused(lambda: posenc.encode(3, 4, position_scale=10**400), ValueError, "encode: position_scale must be finite")


def test_more_elements_than_int64_holds_are_refused(device):
    text = "encode: the result must have at most 2^63 - 1 elements, but got 1099511627776 rows of d_model 1073741824."
    many = torch.zeros((), dtype=torch.int64, device=device).expand(2**20, 2**20)
    for call in (
        lambda: posenc.encode(2**40, 2**30, device=device),
        lambda: posenc.encode(2**40, 2**30, device="meta"),
        lambda: ops.encode(2**40, 2**30, device=device),
        lambda: posenc.encode(many, 2**30),
        lambda: ops.encode.positions(many, 2**30),
        lambda: posenc.encode(2**40, 2**30, out=torch.zeros(3, 4, device=device)),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            call()
    assert posenc.encode(0, INT64_MAX, device=device).shape == (0, INT64_MAX)


REFUSED_POSITIONS = [
    (torch.bool, "bool"),
    (torch.complex64, "complex64"),
    (torch.complex128, "complex128"),
    (torch.uint64, "uint64"),
    (torch.float8_e5m2, "float8_e5m2"),
]


@pytest.mark.parametrize(("dtype", "name"), REFUSED_POSITIONS, ids=str)
def test_positions_of_another_dtype_are_refused(device, dtype, name):
    positions = torch.ones(3, device=device).to(dtype)
    x, out = torch.randn(2, 3, 8, device=device), torch.full((3, 8), 9.0, device=device)
    text = f"positions must be integer (not bool or uint64) or {DTYPES_TEXT}, but got {name}."
    text += " Use positions.to(torch.int64)." if name == "uint64" else ""
    cases = [
        (lambda: posenc.encode(positions, 8), TypeError, f"encode: {text}"),
        (lambda: posenc.encode(positions.to("meta"), 8), TypeError, f"encode: {text}"),
        (lambda: ops.encode(positions, 8), TypeError, f"encode: {text}"),
        (lambda: ops.encode.positions(positions, 8), TypeError, f"encode: {text}"),
        (lambda: posenc.encode(positions, 8, out=out), TypeError, f"encode: {text}"),
        (lambda: posenc.add(x, positions=positions), TypeError, f"add: {text}"),
        (lambda: ops.add(x, positions), TypeError, f"add: {text}"),
        (lambda: posenc.add_(x, positions=positions), TypeError, f"add_: {text}"),
        (lambda: posenc.add(x, positions=positions, out=x), TypeError, f"add: {text}"),
    ]
    check_cases(cases, x, out)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64], ids=str)
def test_an_x_of_another_dtype_is_refused(device, dtype):
    x = torch.ones(2, 3, 8, device=device).to(dtype)
    positions = torch.arange(3, device=device)
    text = f"x must be {DTYPES_TEXT}, but got {str(dtype).removeprefix('torch.')}."
    cases = [
        (lambda: posenc.add(x), TypeError, f"add: {text}"),
        (lambda: posenc.add(x.to("meta")), TypeError, f"add: {text}"),
        (lambda: ops.add(x), TypeError, f"add: {text}"),
        (lambda: posenc.add(x, positions=positions), TypeError, f"add: {text}"),
        (lambda: posenc.add_(x), TypeError, f"add_: {text}"),
        (lambda: posenc.add_(x, positions=positions), TypeError, f"add_: {text}"),
        (lambda: posenc.add(x, out=x), TypeError, f"add: {text}"),
    ]
    check_cases(cases, x)


def test_an_x_of_another_shape_is_refused(device):
    cases = []
    for shape in ((8,), ()):
        x = torch.zeros(shape, device=device)
        text = f"x must have at least 2 dimensions (..., seq_len, d_model), but got shape {list(shape)}."
        text += " Use x.unsqueeze(0) for a single position." if len(shape) == 1 else ""
        for t in (x, x.to("meta")):
            cases += [
                (lambda t=t: posenc.add(t), ValueError, f"add: {text}"),
                (lambda t=t: ops.add(t), ValueError, f"add: {text}"),
                (lambda t=t: posenc.add_(t), ValueError, f"add_: {text}"),
                (lambda t=t: posenc.add(t, out=t), ValueError, f"add: {text}"),
                (
                    lambda t=t: ops.add(t, torch.zeros((), dtype=torch.int64, device=t.device)),
                    ValueError,
                    f"add: {text}",
                ),
            ]
    x = torch.zeros(2, 3, 0, device=device)
    cases.append((lambda: posenc.add(x), ValueError, "add: x must have a last dimension (d_model) of at least 1"))
    check_cases(cases)


def test_a_seq_dim_that_x_has_not_is_refused(device):
    x = torch.randn(2, 3, 8, device=device)
    cases = []
    for dim in (3, -4, 100):
        text = f"seq_dim must be in the range [-3, 2], but got {dim}."
        cases += [
            (lambda d=dim: posenc.add(x, seq_dim=d), IndexError, f"add: {text}"),
            (lambda d=dim: posenc.add(x.to("meta"), seq_dim=d), IndexError, f"add: {text}"),
            (lambda d=dim: ops.add(x, seq_dim=d), IndexError, f"add: {text}"),
            (lambda d=dim: posenc.add_(x, seq_dim=d), IndexError, f"add_: {text}"),
            (lambda d=dim: posenc.add(x, seq_dim=d, out=x), IndexError, f"add: {text}"),
        ]
    for dim in (2, -1):
        text = f"seq_dim must not be the last dimension (d_model), but got {dim}."
        cases.append((lambda d=dim: posenc.add(x, seq_dim=d), ValueError, f"add: {text}"))
        cases.append((lambda d=dim: posenc.add_(x, seq_dim=d), ValueError, f"add_: {text}"))
    check_cases(cases, x)


def test_an_offset_beyond_int64_is_refused_by_add(device):
    x = torch.randn(2, 3, 8, device=device)
    text = f"offset + seq_len must be at most 2^63 - 1, but got offset {INT64_MAX - 2} and seq_len 3."
    cases = [
        (lambda: posenc.add(x, INT64_MAX - 2), ValueError, f"add: {text}"),
        (lambda: posenc.add(x.to("meta"), INT64_MAX - 2), ValueError, f"add: {text}"),
        (lambda: ops.add(x, INT64_MAX - 2), ValueError, f"add: {text}"),
        (lambda: posenc.add_(x, INT64_MAX - 2), ValueError, f"add_: {text}"),
        (lambda: posenc.add(x, INT64_MAX - 2, out=x), ValueError, f"add: {text}"),
    ]
    check_cases(cases, x)
    assert_same_bits(posenc.add(x, INT64_MAX - 3), x + posenc.encode(3, 8, INT64_MAX - 3, device=device))


def test_positions_that_do_not_broadcast_are_refused(device):
    x = torch.randn(2, 3, 8, device=device)
    cases = []
    for shape in ((2,), (4,), (3, 3), (2, 2), (1, 2, 3), (0,), (2, 3, 8)):
        positions = torch.zeros(shape, dtype=torch.int64, device=device)
        text = "positions must broadcast to the shape of x without its last dimension, [2, 3], "
        text += f"but got shape {list(shape)}."
        cases += [
            (lambda p=positions: posenc.add(x, positions=p), ValueError, f"add: {text}"),
            (lambda p=positions: posenc.add(x.to("meta"), positions=p.to("meta")), ValueError, f"add: {text}"),
            (lambda p=positions: ops.add(x, p), ValueError, f"add: {text}"),
            (lambda p=positions: posenc.add_(x, positions=p), ValueError, f"add_: {text}"),
            (lambda p=positions: posenc.add(x, positions=p, out=x), ValueError, f"add: {text}"),
        ]
    check_cases(cases, x)


def test_a_single_position_for_several_tokens_is_refused_by_the_functions(device):
    x = torch.randn(2, 3, 8, device=device)
    cases = []
    for positions in (torch.tensor(5, device=device), torch.tensor([5], device=device)):
        for op, f in (("add", posenc.add), ("add_", posenc.add_)):
            text = f"{op}: positions must hold a position for each token of x with shape [2, 3, 8], "
            text += "but got a single one. Use offset="
            cases += [
                (lambda f=f, p=positions: f(x, p), ValueError, text),
                (lambda f=f, p=positions: f(x, positions=p), ValueError, text),
            ]
    check_cases(cases, x)


def test_positions_together_with_an_offset_are_refused(device):
    x, positions = torch.randn(2, 3, 8, device=device), torch.arange(3, device=device)
    out = torch.full((3, 8), 9.0, device=device)
    cases = []
    for offset in (1, -7):
        text = f"offset must be 0 where positions are given, but got {offset}."
        cases += [
            (lambda o=offset: posenc.encode(positions, 8, o), ValueError, f"encode: {text}"),
            (lambda o=offset: posenc.encode(positions, 8, offset=o, out=out), ValueError, f"encode: {text}"),
            (lambda o=offset: posenc.add(x, o, positions), ValueError, f"add: {text}"),
            (lambda o=offset: posenc.add(x, offset=o, positions=positions, out=x), ValueError, f"add: {text}"),
            (lambda o=offset: posenc.add_(x, o, positions), ValueError, f"add_: {text}"),
        ]
    text = "add: seq_dim must be -2 where positions are given, but got 0."
    cases.append((lambda: posenc.add(x, positions=positions, seq_dim=0), ValueError, text))
    check_cases(cases, x, out)


def test_an_out_that_does_not_fit_is_refused(device):
    positions = torch.arange(3, device=device)
    x = torch.randn(2, 3, 8, device=device)
    cases: list[tuple[Callable[[], object], type[Exception], str]] = []
    for shape in ((3, 9), (4, 8), (8, 3), (1, 3, 8), (24,), ()):
        out = torch.zeros(shape, device=device)
        text = f"encode: out must have shape [3, 8], but got {list(shape)}."
        for f in (posenc.encode, ops.encode):
            cases.append((lambda f=f, out=out: f(3, 8, out=out), ValueError, text))
            cases.append((lambda f=f, out=out: f(positions, 8, out=out), ValueError, text))
        cases.append((lambda out=out: posenc.encode(3, 8, out=out.to("meta")), ValueError, text))
    for shape in ((2, 3, 9), (3, 8), (1, 2, 3, 8), (2, 3)):
        out = torch.zeros(shape, device=device)
        text = f"add: out must have shape [2, 3, 8], but got {list(shape)}."
        cases.append((lambda out=out: posenc.add(x, out=out), ValueError, text))
        cases.append((lambda out=out: ops.add.out(x, out=out), ValueError, text))
        cases.append((lambda out=out: posenc.add(x, positions=positions, out=out), ValueError, text))
    for dtype in (torch.int64, torch.complex64, torch.bool):
        out = torch.zeros(3, 8, dtype=dtype, device=device)
        text = f"encode: out must be {DTYPES_TEXT}, but got {str(dtype).removeprefix('torch.')}."
        cases.append((lambda out=out: posenc.encode(3, 8, out=out), TypeError, text))
        cases.append((lambda out=out: ops.encode.positions_out(positions, 8, out=out), TypeError, text))
    for dtype in (torch.float64, torch.bfloat16, torch.int32):
        out = torch.zeros(2, 3, 8, dtype=dtype, device=device)
        text = f"add: out must have dtype float32, but got {str(dtype).removeprefix('torch.')}."
        cases.append((lambda out=out: posenc.add(x, out=out), TypeError, text))
        cases.append((lambda out=out: ops.add.positions_out(x, positions, out=out), TypeError, text))
    check_cases(cases, x)


def test_tensors_on_another_device_are_refused(device):
    positions, x = torch.arange(3, device=device), torch.randn(2, 3, 8, device=device)
    index = ":0" if device == "cuda" else ""
    on_meta = torch.empty(2, 3, 8, device="meta")
    check_cases(
        [
            (
                lambda: posenc.encode(positions, 8, out=on_meta[0]),
                ValueError,
                f"encode: out must be on device {device}{index}, but got meta.",
            ),
            (
                lambda: ops.encode(positions, 8, out=on_meta[0]),
                ValueError,
                f"encode: out must be on device {device}{index}, but got meta.",
            ),
            (
                lambda: posenc.encode(positions, 8, device="meta"),
                ValueError,
                f"encode: device must be that of positions ({device}{index})",
            ),
            (
                lambda: posenc.encode(3, 8, device="meta", out=x[0]),
                ValueError,
                f"encode: device must be that of out ({device}{index})",
            ),
            (
                lambda: posenc.add(x, out=on_meta),
                ValueError,
                f"add: out must be on device {device}{index}, but got meta.",
            ),
            (
                lambda: posenc.add(x, positions=positions.to("meta")),
                ValueError,
                f"add: positions must be on the device of x ({device}{index}), but got meta.",
            ),
            (
                lambda: ops.add_(x, positions.to("meta")),
                ValueError,
                f"add_: positions must be on the device of x ({device}{index}), but got meta.",
            ),
        ],
        x,
    )


def test_a_dtype_of_the_result_that_is_none_of_ours_is_refused(device):
    positions = torch.arange(3, device=device)
    out = torch.full((3, 8), 9.0, device=device)
    cases: list[tuple[Callable[[], object], type[Exception], str]] = []
    for dtype in (torch.int64, torch.complex64, torch.bool, torch.float8_e4m3fn):
        text = f"encode: dtype must be {DTYPES_TEXT}, but got {str(dtype).removeprefix('torch.')}."
        for f in (posenc.encode, ops.encode):
            cases.append((lambda f=f, dtype=dtype: f(3, 8, dtype=dtype, device=device), TypeError, text))
            cases.append((lambda f=f, dtype=dtype: f(3, 8, dtype=dtype, device="meta"), TypeError, text))
            cases.append((lambda f=f, dtype=dtype: f(positions, 8, dtype=dtype), TypeError, text))
    text = "encode: dtype must be that of out (torch.float32) or None, but got torch.float64."
    cases.append((lambda: posenc.encode(3, 8, dtype=torch.float64, out=out), TypeError, text))
    check_cases(cases, out)


def test_tensors_that_hold_an_element_twice_are_not_written(device):
    row = torch.full((8,), 9.0, device=device)
    positions = torch.arange(3, device=device)
    text = "must have no two elements in one place of memory, but got strides "
    check_cases(
        [
            (lambda: posenc.encode(3, 8, out=row.expand(3, 8)), ValueError, f"encode: out {text}"),
            (lambda: ops.encode(positions, 8, out=row.expand(3, 8)), ValueError, f"encode: out {text}"),
            (lambda: posenc.add_(row.expand(3, 8)), ValueError, f"add_: x {text}"),
            (lambda: ops.add_(row.expand(3, 8), positions), ValueError, f"add_: x {text}"),
            (
                lambda: posenc.add(torch.zeros(3, 8, device=device), out=row.expand(3, 8)),
                ValueError,
                f"add: out {text}",
            ),
        ],
        row,
    )


def test_tensors_that_overlap_another_are_not_written(device):
    rows = torch.randn(4, 8, device=device)
    values = torch.zeros(24, device=device)
    check_cases(
        [
            (
                lambda: posenc.add(rows[:3], out=rows[1:]),
                ValueError,
                "add: out must not share memory with x unless they are the same view",
            ),
            (
                lambda: ops.add.out(rows[1:], out=rows[:3]),
                ValueError,
                "add: out must not share memory with x unless they are the same view",
            ),
            (
                lambda: posenc.encode(values[:3], 8, out=values.view(3, 8)),
                ValueError,
                "encode: out must not share memory with positions",
            ),
            (
                lambda: posenc.add_(values.view(3, 8), positions=values[:3]),
                ValueError,
                "add_: x must not share memory with positions",
            ),
        ],
        rows,
        values,
    )


def test_sparse_tensors_are_not_supported(device):
    x = torch.randn(2, 3, 8, device=device)
    positions = torch.ones(3, device=device).to_sparse()
    text = "must be a strided tensor, but got layout Sparse. Use"
    check_cases(
        [
            (lambda: posenc.add(x.to_sparse()), NotImplementedError, f"add: x {text} x.to_dense()."),
            (lambda: posenc.add_(x.to_sparse()), NotImplementedError, f"add_: x {text} x.to_dense()."),
            (
                lambda: posenc.add(x, positions=positions),
                NotImplementedError,
                f"add: positions {text} positions.to_dense().",
            ),
            (lambda: posenc.add(x, out=x.to_sparse()), NotImplementedError, f"add: out {text} out.to_dense()."),
            (
                lambda: posenc.encode(3, 8, out=x[0].to_sparse()),
                NotImplementedError,
                f"encode: out {text} out.to_dense().",
            ),
        ],
        x,
    )


UNUSUAL_POSITIONS = """
import torch, posenc, warnings
warnings.simplefilter("ignore")
for p in (
    torch.ones(3).to_sparse(),
    torch.ones(3, 4).to_sparse_csr(),
    torch.ones(3).to_mkldnn(),
    torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.quint8),
):
    for out in (None, torch.zeros(*p.shape, 4)):
        try:
            posenc.encode(p, 4, out=out)
        except Exception as error:
            print(type(error).__name__, str(error).split(" must ")[0], flush=True)
"""


def test_positions_that_are_no_plain_tensor_are_refused():
    """In a process of its own, since a refusal that calls itself would end it."""
    process = subprocess.run([sys.executable, "-c", UNUSUAL_POSITIONS], capture_output=True, text=True, check=False)
    expected = [*["NotImplementedError encode: positions"] * 6, *["TypeError encode: positions"] * 2]
    assert process.stdout.splitlines() == expected, process.stderr
    assert process.returncode == 0


# ---- Python types. ----


class Other:
    """Neither a number nor a tensor."""


WRONG_TYPES: list[tuple[str, Callable[[Tensor], object]]] = [
    ("encode: seq_len must be an int, but got float.", lambda x: posenc.encode(3.0, 8)),
    ("encode: seq_len must be an int, but got str.", lambda x: posenc.encode("3", 8)),
    ("encode: seq_len must be an int, but got bool.", lambda x: posenc.encode(True, 8)),
    ("encode: seq_len must be an int, but got NoneType.", lambda x: posenc.encode(None, 8)),
    ("encode: seq_len must be an int, but got list.", lambda x: posenc.encode([1, 2], 8)),
    ("encode: seq_len must be an int, but got Other.", lambda x: posenc.encode(Other(), 8)),
    ("encode: d_model must be an int, but got float.", lambda x: posenc.encode(3, 8.0)),
    ("encode: d_model must be an int, but got bool.", lambda x: posenc.encode(3, True)),
    ("encode: d_model must be an int, but got Tensor.", lambda x: posenc.encode(3, torch.tensor(8))),
    ("encode: offset must be an int, but got float.", lambda x: posenc.encode(3, 8, 1.0)),
    ("encode: offset must be an int, but got bool.", lambda x: posenc.encode(3, 8, False)),
    ("encode: offset must be an int, but got Tensor.", lambda x: posenc.encode(3, 8, torch.tensor(1))),
    ("encode: dtype must be a torch.dtype, but got str.", lambda x: posenc.encode(3, 8, dtype="float32")),
    ("encode: dtype must be a torch.dtype, but got type.", lambda x: posenc.encode(3, 8, dtype=float)),
    ("encode: device must be ", lambda x: posenc.encode(3, 8, device=1.5)),
    ("encode: out must be a Tensor, but got list.", lambda x: posenc.encode(3, 8, out=[])),
    ("add: x must be a Tensor, but got list.", lambda x: posenc.add([[1.0]])),
    ("add: x must be a Tensor, but got ndarray.", lambda x: posenc.add(x.numpy())),
    ("add: x must be a Tensor, but got NoneType.", lambda x: posenc.add(None)),
    ("add_: x must be a Tensor, but got int.", lambda x: posenc.add_(3)),
    ("add: offset must be an int, but got float.", lambda x: posenc.add(x, 1.0)),
    ("add: offset must be an int, but got NoneType.", lambda x: posenc.add(x, None)),
    ("add_: offset must be an int, but got str.", lambda x: posenc.add_(x, "1")),
    ("add: positions must be a Tensor, but got list.", lambda x: posenc.add(x, positions=[0, 1, 2])),
    ("add_: positions must be a Tensor, but got range.", lambda x: posenc.add_(x, positions=range(3))),
    ("add: seq_dim must be an int, but got str.", lambda x: posenc.add(x, seq_dim="seq")),
    ("add: seq_dim must be an int, but got NoneType.", lambda x: posenc.add(x, seq_dim=None)),
    ("add: out must be a Tensor, but got str.", lambda x: posenc.add(x, out="x")),
    *(
        (
            f"{op}: {name} must be a float, but got {type(value).__name__}.",
            lambda x, f=f, n=name, v=value: f(x, **{n: v}),
        )
        for op, f in (("add", posenc.add), ("add_", posenc.add_), ("encode", lambda x, **kw: posenc.encode(3, 8, **kw)))
        for name in (*(("input_scale", "alpha") if op != "encode" else ()), "base", "freq_shift", "position_scale")
        for value in ("2", None, [2.0], torch.tensor(2.0))
    ),
    *(
        (f"{op}: {name} must be a str, but got {type(value).__name__}.", lambda x, f=f, n=name, v=value: f(x, **{n: v}))
        for op, f in (("add", posenc.add), ("encode", lambda x, **kw: posenc.encode(3, 8, **kw)))
        for name in ("order", "odd")
        for value in (1, None, True, b"split", ["split"])
    ),
    ("encode: base must be a float, but got str.", lambda x: posenc.positional_encoding(3, 8, "100")),
    ("encode: seq_len must be an int, but got float.", lambda x: posenc.positional_encoding(3.0, 8)),
]


@pytest.mark.parametrize(("text", "call"), WRONG_TYPES, ids=[text for text, _ in WRONG_TYPES])
def test_a_wrong_python_type_is_a_type_error(text, call):
    x = torch.randn(2, 3, 8)
    check_cases([(lambda: call(x), TypeError, text)], x)


@pytest.mark.parametrize("value", [True, False], ids=str)
@pytest.mark.parametrize("name", ["input_scale", "alpha", "base", "freq_shift", "position_scale"])
def test_a_bool_is_no_float_even_where_it_equals_the_default(name, value):
    refused(
        lambda: posenc.add(torch.zeros(3, 8), **{name: value}), TypeError, f"add: {name} must be a float, but got bool."
    )


def test_a_tensor_is_no_float_even_where_it_equals_the_default():
    refused(
        lambda: posenc.encode(3, 8, base=torch.tensor(10000.0)),
        TypeError,
        "encode: base must be a float, but got Tensor.",
    )
    refused(
        lambda: posenc.add(torch.zeros(3, 8), alpha=torch.tensor(1.0)),
        TypeError,
        "add: alpha must be a float, but got Tensor.",
    )


def test_an_offset_of_a_wrong_type_beside_positions_is_a_type_error():
    for offset in (True, None, "1", 0.0):
        text = f"encode: offset must be an int, but got {type(offset).__name__}."
        refused(lambda offset=offset: posenc.encode(torch.arange(3), 8, offset), TypeError, text)


def test_an_unknown_keyword_is_a_type_error():
    for call in (lambda: posenc.encode(3, 8, theta=100.0), lambda: posenc.add(torch.zeros(3, 8), dropout=0.1)):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()


def test_raw_operators_give_the_error_of_torch_for_a_wrong_python_type():
    for call in (
        lambda: ops.encode("3", 8),
        lambda: ops.encode.default(3, 8, theta=1.0),
        lambda: ops.add.default([1.0]),
    ):
        with pytest.raises(RuntimeError, match="posenc::"):
            call()


@pytest.mark.filterwarnings(r"ignore:`torch\.jit\.script` is deprecated:FutureWarning")
def test_torchscript_gives_the_same_text_as_a_runtime_error():
    @torch.jit.script
    def call(x: Tensor, seq_len: int, order: str) -> Tensor:
        return torch.ops.posenc.add(x, order=order) + torch.ops.posenc.encode(seq_len, 8)

    x = torch.zeros(3, 8)
    for args, text in (
        ((x, -1, "split"), "encode: seq_len must be at least 0, but got -1."),
        ((x, 3, "mixed"), f'add: order must be {ORDERS_TEXT}, but got "mixed".'),
        ((x.to(torch.int32), 3, "split"), f"add: x must be {DTYPES_TEXT}, but got int32."),
    ):
        with pytest.raises(RuntimeError, match=re.escape(text)):
            call(*args)
    assert_same_bits(call(x, 3, "split"), posenc.encode(3, 8, order="split") + posenc.encode(3, 8))
