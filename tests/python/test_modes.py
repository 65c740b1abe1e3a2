"""Tensors and modes of torch that reach an operator by ways of their own."""

from __future__ import annotations

import math

import posenc
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from cases import assert_same_bits

POSITIONS = torch.tensor([0.25, 1.0, -3.5], dtype=torch.float64)


def negated_view() -> torch.Tensor:
    view = torch.zeros(3, 4, dtype=torch.complex64).conj().imag
    assert view.is_neg()
    return view


@pytest.mark.parametrize(
    ("write", "result"),
    [
        (lambda v: posenc.add(torch.ones(3, 4), out=v), lambda: posenc.add(torch.ones(3, 4))),
        (
            lambda v: posenc.add(torch.ones(3, 4), positions=torch.arange(3), out=v),
            lambda: posenc.add(torch.ones(3, 4)),
        ),
        (lambda v: posenc.encode(3, 4, out=v), lambda: posenc.encode(3, 4)),
        (lambda v: posenc.encode(torch.arange(3), 4, out=v), lambda: posenc.encode(3, 4)),
        (posenc.add_, lambda: posenc.encode(3, 4)),
        (lambda v: posenc.add_(v, positions=torch.arange(3)), lambda: posenc.encode(3, 4)),
    ],
    ids=["add", "add_positions", "encode", "encode_positions", "add_", "add__positions"],
)
def test_negated_views_are_written(write, result):
    for _ in range(20):  # a damaged stack shows only after some calls
        view = negated_view()
        write(view)
        assert torch.equal(view, result())


@pytest.mark.parametrize("order", ["interleaved", "split_cos_first"])
@pytest.mark.parametrize(("d_model", "odd"), [(4, "sin"), (5, "sin"), (5, "zero"), (5, "cut")])
def test_positions_differentiate_under_torch_func_and_in_forward_mode(order, d_model, odd):
    def encode(p):
        return posenc.encode(p, d_model, order=order, odd=odd, position_scale=-0.5, dtype=torch.float64)

    p = POSITIONS.clone().requires_grad_()
    assert torch.autograd.gradcheck(encode, (p,), check_forward_ad=True)
    expected = torch.autograd.grad(encode(p).sum(), p)[0]
    torch.testing.assert_close(torch.func.grad(lambda q: encode(q).sum())(POSITIONS), expected, rtol=0, atol=1e-14)
    value, _ = torch.func.jvp(encode, (POSITIONS,), (torch.ones_like(POSITIONS),))
    assert_same_bits(value, encode(POSITIONS))


def test_second_derivatives_under_torch_func_are_those_of_the_formula():
    hessian = torch.func.hessian(lambda p: posenc.encode(p, 2, dtype=torch.float64).sum())(POSITIONS)
    expected = torch.diag(-POSITIONS.sin() - POSITIONS.cos())
    torch.testing.assert_close(hessian, expected, rtol=0, atol=1e-14)


def test_forms_that_write_into_out_refuse_tangents():
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.randn(3, 4), torch.ones(3, 4))
        out = torch.full((3, 4), 7.0)
        for call in (lambda: posenc.add(dual, out=out), lambda: posenc.encode(dual[:, 0], 4, out=out)):
            with pytest.raises(NotImplementedError, match="must not carry a forward-mode tangent"):
                call()
        with pytest.raises(NotImplementedError, match="out must not carry a forward-mode tangent"):
            posenc.encode(3, 4, out=dual)
        assert torch.equal(out, torch.full((3, 4), 7.0))


def test_inference_tensors_are_refused_before_they_are_written():
    with torch.inference_mode():
        x = torch.zeros(3, 4)
        posenc.add_(x)
    before = x.clone()
    for call in (
        lambda: posenc.add_(x),
        lambda: posenc.add_(x, positions=torch.arange(3)),
        lambda: posenc.add(torch.ones(3, 4), out=x),
        lambda: posenc.encode(3, 4, out=x),
    ):
        with pytest.raises(RuntimeError, match="must not be an inference tensor outside InferenceMode"):
            call()
    assert torch.equal(x, before)


def test_in_place_addition_at_positions_is_vectorised():
    x, positions = torch.zeros(2, 3, 4), torch.arange(6.0).view(2, 3)
    torch.func.vmap(lambda a, p: posenc.add_(a, positions=p))(x, positions)
    assert_same_bits(x, posenc.encode(positions, 4))


class _Offset(torch.nn.Module):
    def forward(self, x, n):
        return posenc.add(x, n.item())


class _Length(torch.nn.Module):
    def forward(self, x):
        return posenc.encode(x.shape[1], 8)


class _Found(torch.nn.Module):
    def forward(self, p):
        found = p.nonzero().squeeze(1)
        return posenc.add(torch.zeros(found.shape[0], 8), positions=found)


@pytest.mark.parametrize("strict", [True, False])
def test_sizes_and_offsets_that_are_not_known_yet_export(strict):
    x = torch.randn(2, 3, 8)
    exported = torch.export.export(_Offset(), (x, torch.tensor(3)), strict=strict)
    assert_same_bits(exported.module()(x, torch.tensor(50)), posenc.add(x, 50))
    dynamic = ({0: torch.export.Dim("batch"), 1: torch.export.Dim("seq_len")},)
    exported = torch.export.export(_Length(), (x,), dynamic_shapes=dynamic, strict=strict)
    assert_same_bits(exported.module()(torch.randn(5, 9, 8)), posenc.encode(9, 8))
    exported = torch.export.export(_Found(), (torch.ones(4),), strict=strict)
    assert_same_bits(exported.module()(torch.tensor([0.0, 1.0, 1.0, 0.0])), posenc.encode(2, 8, 1))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace` is deprecated")
def test_a_traced_size_is_not_taken_for_a_position():
    with pytest.raises(ValueError, match=r"must have a dimension under torch\.jit\.trace"):
        torch.jit.trace(lambda x: posenc.encode(x.shape[0], 8), (torch.zeros(3),), check_trace=False)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((torch.zeros(2, 3, 8), 2**63 - 2), ValueError, "offset"),
        ((torch.zeros(2, 3, 8), 2**64), ValueError, "offset must be within int64"),
        ((torch.zeros(2, 3, 8), 1.5), TypeError, "offset must be an int"),
        ((torch.zeros(2, 3, 8), True), TypeError, "offset must be an int"),
        ((torch.zeros(2, 3, 8), torch.tensor([1, 2, 3])), ValueError, "offset must be 0-dimensional or have shape"),
        ((torch.zeros(2, 3, 8), torch.tensor(3, dtype=torch.uint64)), TypeError, "offset must be an int or an integer"),
        ((torch.zeros(2, 3, 8, dtype=torch.int64),), TypeError, "x must be float64"),
        ((torch.zeros(2, 3, 8, dtype=torch.complex64),), TypeError, "x must be float64"),
        ((torch.zeros(2, 3, 8), 0, torch.zeros(5, 2, 3)), ValueError, "positions must broadcast"),
        ((torch.zeros(2, 3, 8), 0, torch.zeros(3, 2)), ValueError, "positions must broadcast"),
    ],
)
@pytest.mark.parametrize("learnable_alpha", [False, True])
def test_a_module_checks_the_same_with_a_learnable_alpha(learnable_alpha, arguments, error, text):
    with pytest.raises(error, match=text):
        posenc.nn.PositionalEncoding(8, learnable_alpha=learnable_alpha)(*arguments)


def test_a_subnormal_base_is_a_base_where_subnormals_are_flushed():
    expected = posenc.encode(3, 4, base=5e-324)
    try:
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor cannot flush subnormal numbers")
        assert_same_bits(posenc.encode(3, 4, base=5e-324), expected)
    finally:
        torch.set_flush_denormal(False)


def test_a_scale_of_zero_mirrors_as_any_other():
    for scale in (0.0, -0.0):
        mirrored = posenc.encode(torch.tensor([-5, 5]), 4, position_scale=-scale)
        assert_same_bits(posenc.encode(torch.tensor([5, -5]), 4, position_scale=scale), mirrored)
        assert math.copysign(1.0, float(posenc.encode(1, 1, position_scale=scale)[0, 0])) == 1.0
