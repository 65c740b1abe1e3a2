"""Gradients of add and of encode with respect to x and to floating positions."""

from __future__ import annotations

import warnings

import posenc
import pytest
import torch
from cases import DTYPES, ODDS, ORDERS, OTHER_CONVENTION, assert_same_bits, compute_dtype, definition, name_of, ops
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

CONVENTIONS = [
    *({"order": order, "odd": odd} for order in ORDERS for odd in ODDS),
    OTHER_CONVENTION,
    {"base": 3.0, "freq_shift": -0.5, "position_scale": 1.7},
]

# The first use of forward mode in a process makes torch script decompositions of its own.
TORCH_OWN_WARNING = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")


def leaf(*shape: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    """Normal values that ask for a gradient."""
    return torch.randn(shape, dtype=dtype, device=device, requires_grad=True)


def range_sum(x: Tensor) -> Tensor:
    return posenc.add(x, 3, input_scale=2.5, alpha=0.3)


def check_twice(function, *inputs: Tensor) -> None:
    """First and second derivatives agree with finite differences."""
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize("kwargs", [{}, {"input_scale": -1.5, "alpha": 0.3}, {"seq_dim": 0}, OTHER_CONVENTION], ids=str)
def test_gradients_of_x(device, kwargs):
    check_twice(lambda x: posenc.add(x, 3, **kwargs), leaf(2, 3, 5, device=device))
    check_twice(lambda x: posenc.add_(x.clone(), 3, **kwargs), leaf(2, 3, 5, device=device))
    check_twice(lambda x: posenc.add(x, 3, **kwargs), leaf(5, 3, 2, device=device).mT)


@pytest.mark.parametrize("position_dtype", [torch.int64, torch.uint8, torch.float32], ids=name_of)
def test_gradients_of_x_with_positions_that_need_none(device, position_dtype):
    positions = torch.tensor([[4], [9]], device=device).to(position_dtype)
    check_twice(lambda x: posenc.add(x, positions=positions, input_scale=1.5), leaf(2, 3, 5, device=device))
    check_twice(lambda x: posenc.add_(x.clone(), positions=positions, input_scale=1.5), leaf(2, 3, 5, device=device))


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
def test_gradients_of_positions_in_encode(device, convention):
    for d_model in (1, 2, 5, 6):
        if d_model == 2 and convention.get("freq_shift") == 1.0:
            continue  # only pair 0, whose denominator of zero is of no interest here
        check_twice(lambda p: posenc.encode(p, d_model, dtype=torch.float64, **convention), leaf(3, device=device))  # noqa: B023


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 2)], ids=str)
def test_gradients_of_positions_of_any_shape(device, shape):
    check_twice(lambda p: posenc.encode(p, 4, dtype=torch.float64), leaf(*shape, device=device))
    check_twice(
        lambda p: posenc.encode(p.mT if p.dim() > 1 else p, 4, dtype=torch.float64), leaf(*shape, device=device)
    )


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1), (1, 3), (2, 2, 3)], ids=str)
def test_gradients_of_x_and_positions_in_add(device, shape):
    x, positions = leaf(2, 2, 3, 5, device=device), leaf(*shape, device=device)
    for kwargs in ({}, {"input_scale": 1.5, "alpha": -0.7}, OTHER_CONVENTION):
        check_twice(lambda x, p: posenc.add(x, positions=p, **kwargs), x, positions)  # noqa: B023
    check_twice(lambda p: posenc.add(x.detach(), positions=p), positions)
    check_twice(lambda x, p: posenc.add_(x.clone(), positions=p), x, positions)


def test_third_derivative_of_an_encoding(device):
    p = leaf(4, device=device)
    derivative = posenc.encode(p, 2, dtype=torch.float64)[:, 0]
    for _ in range(3):
        (derivative,) = torch.autograd.grad(derivative.sum(), p, create_graph=True)
    # One product of a sine, of a frequency of 1, in each step: a few roundings of values of at most 1.
    assert torch.allclose(derivative, -p.cos(), rtol=0, atol=1e-15)
    assert derivative.requires_grad


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_gradient_of_x_has_the_bits_of_the_definition(device, dtype):
    x = leaf(2, 3, 8, dtype=dtype, device=device)
    gradient = torch.randn(2, 3, 8, device=device).to(dtype)
    positions = torch.arange(3, 6, device=device)
    encoding = posenc.encode(3, 8, 3, dtype=compute_dtype(dtype), device=device)
    for scale in (1.0, 1.7):
        (expected,) = torch.autograd.grad(definition(x, encoding, scale), x, gradient)
        for result in (
            posenc.add(x, 3, input_scale=scale),
            posenc.add(x, positions=positions, input_scale=scale),
            posenc.add_(x.clone(), 3, input_scale=scale),
        ):
            (actual,) = torch.autograd.grad(result, x, gradient)
            assert_same_bits(actual, expected, scale)
    (identity,) = torch.autograd.grad(posenc.add(x, 3), x, gradient)
    assert_same_bits(identity, gradient)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_values_are_the_same_with_and_without_gradient(device, dtype):
    x = torch.randn(2, 3, 7, device=device).to(dtype)
    positions = torch.tensor([0.5, -2.0, 1e6], device=device)
    for kwargs in ({}, {"input_scale": 1.7, "alpha": 0.3}):
        plain, given = posenc.add(x, 3, **kwargs), posenc.add(x, positions=positions, **kwargs)
        leaf_x, leaf_positions = x.clone().requires_grad_(), positions.clone().requires_grad_()
        assert_same_bits(posenc.add(leaf_x, 3, **kwargs), plain)
        assert_same_bits(posenc.add(leaf_x, positions=positions, **kwargs), given)
        assert_same_bits(posenc.add(x, positions=leaf_positions, **kwargs), given)
        assert_same_bits(posenc.add(leaf_x, positions=leaf_positions, **kwargs), given)
        assert_same_bits(posenc.add_(leaf_x.clone(), 3, **kwargs), plain)
        assert_same_bits(posenc.add_(leaf_x.clone(), positions=leaf_positions, **kwargs), given)
        assert_same_bits(posenc.encode(leaf_positions, 7, dtype=dtype), posenc.encode(positions, 7, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_gradient_has_the_dtype_of_what_it_belongs_to(device, dtype):
    for position_dtype in DTYPES:
        x = leaf(2, 3, 4, dtype=dtype, device=device)
        positions = leaf(3, dtype=position_dtype, device=device)
        posenc.add(x, positions=positions).sum().backward()
        assert (x.grad.dtype, positions.grad.dtype) == (dtype, position_dtype)
        positions.grad = None
        posenc.encode(positions, 4, dtype=dtype).sum().backward()
        assert positions.grad.dtype == position_dtype


# ---- Where no gradient is needed. ----


def test_no_graph_where_no_gradient_is_needed(device):
    x, positions = torch.randn(2, 3, 4, device=device), torch.randn(3, device=device)
    for result in (posenc.add(x), posenc.add(x, positions=positions), posenc.encode(positions, 4)):
        assert not result.requires_grad
        assert result.grad_fn is None
    needy, needy_positions = x.clone().requires_grad_(), positions.clone().requires_grad_()
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            for result in (
                posenc.add(needy),
                posenc.add(needy, positions=positions),
                posenc.add(x, positions=needy_positions),
                posenc.encode(needy_positions, 4),
            ):
                assert not result.requires_grad
                assert result.is_inference() == (context is torch.inference_mode)


def test_a_graph_where_a_gradient_is_needed(device):
    x, positions = leaf(2, 3, 4, device=device), leaf(3, device=device)
    for result in (
        posenc.add(x),
        posenc.add(x, positions=positions.detach()),
        posenc.add(x.detach(), positions=positions),
        posenc.encode(positions, 4),
    ):
        assert result.grad_fn is not None


def test_inference_tensors_are_taken_and_written(device):
    with torch.inference_mode():
        x, positions = torch.randn(2, 3, 4, device=device), torch.arange(3, device=device)
        expected = x + posenc.encode(3, 4, device=device)
        assert_same_bits(posenc.add(x), expected)
        assert_same_bits(posenc.add(x, positions=positions), expected)
        assert_same_bits(posenc.add(x, out=torch.empty_like(x)), expected)
        assert_same_bits(posenc.add_(x.clone()), expected)
        assert_same_bits(posenc.add_(x.clone(), positions=positions), expected)
    assert_same_bits(posenc.add(x), expected)  # outside as well


# ---- In place. ----


def test_in_place_on_a_tensor_of_the_graph(device):
    x = leaf(2, 3, 4, device=device)
    positions = torch.arange(3, 6, device=device)
    for written in (x * 2, x * 2):
        version = written._version
        result = posenc.add_(written, 3, input_scale=1.5)
        assert result is written
        assert written._version > version
        (actual,) = torch.autograd.grad(written.square().sum(), x)
        (expected,) = torch.autograd.grad(posenc.add(x * 2, 3, input_scale=1.5).square().sum(), x)
        assert_same_bits(actual, expected)
    written = posenc.add_(x * 2, positions=positions, input_scale=1.5)
    assert_same_bits(torch.autograd.grad(written.square().sum(), x)[0], expected)


def test_in_place_on_a_view(device):
    x = leaf(2, 3, 4, device=device)
    base = x * 1
    posenc.add_(base[0], input_scale=3.0)
    (gradient,) = torch.autograd.grad(base.sum(), x)
    expected = torch.ones_like(x)
    expected[0] = 3.0
    assert_same_bits(gradient, expected)


def test_in_place_with_positions_that_need_a_gradient(device):
    x, positions = torch.randn(2, 3, 4, dtype=torch.float64, device=device), leaf(3, device=device)
    written = posenc.add_(x.clone(), positions=positions)
    (actual,) = torch.autograd.grad(written.square().sum(), positions)
    (expected,) = torch.autograd.grad(posenc.add(x, positions=positions).square().sum(), positions)
    assert torch.allclose(actual, expected, rtol=1e-14, atol=0)


def test_in_place_refuses_a_leaf_that_needs_a_gradient(device):
    x, positions = leaf(2, 3, 4, device=device), torch.arange(3, device=device)
    before = x.detach().clone()
    for call in (
        lambda: posenc.add_(x),
        lambda: ops.add_(x),
        lambda: posenc.add_(x, positions=positions),
    ):
        with pytest.raises(RuntimeError, match=r"^add_: x must not be a leaf that requires grad"):
            call()
    with pytest.raises(RuntimeError, match="leaf"):  # a view of one: the text is torch's
        posenc.add_(x[0])
    assert_same_bits(x, before)
    with torch.no_grad():
        posenc.add_(x)
    assert_same_bits(x, posenc.add(before))


def test_out_forms_refuse_inputs_that_need_a_gradient(device):
    x, positions = torch.zeros(2, 3, 4, device=device), torch.zeros(3, device=device)
    needy_x, needy_positions = leaf(2, 3, 4, dtype=torch.float32, device=device), positions.clone().requires_grad_()
    table = torch.zeros(3, 4, device=device)
    needy_table = torch.zeros(3, 4, device=device, requires_grad=True)
    out = torch.full((2, 3, 4), 9.0, device=device)
    cases = {
        "add: x": lambda: posenc.add(needy_x, out=out),
        "add: out": lambda: posenc.add(x, out=needy_x),
        "add: positions": lambda: posenc.add(x, positions=needy_positions, out=out),
        "encode: positions": lambda: posenc.encode(needy_positions, 4, out=table),
        "encode: out": lambda: posenc.encode(3, 4, out=needy_table),
    }
    for text, call in cases.items():
        with pytest.raises(NotImplementedError, match=f"{text} must not require grad"):
            call()
    assert bool((out == 9.0).all())
    assert bool((table == 0.0).all())
    with torch.no_grad():
        for call in cases.values():
            call()


# ---- With the rest of torch. ----


def test_two_calls_before_one_backward(device):
    x = leaf(2, 3, 4, device=device)
    (posenc.add(x, 1) * posenc.add(x, 2)).sum().backward()
    with torch.no_grad():
        expected = posenc.add(x, 1) + posenc.add(x, 2)
    assert torch.allclose(x.grad, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint(device, use_reentrant):
    x = leaf(2, 3, 4, device=device)
    for function in (range_sum, lambda x: posenc.add(x, positions=torch.arange(3, device=device), input_scale=2.5)):
        (expected,) = torch.autograd.grad(function(x).square().sum(), x)
        loss = checkpoint(function, x, use_reentrant=use_reentrant).square().sum()
        x.grad = None
        loss.backward()
        assert_same_bits(x.grad, expected)


def test_autocast_keeps_the_dtype_of_x(device):
    with torch.autocast(device, dtype=torch.bfloat16):
        for dtype in DTYPES:
            x = torch.randn(2, 3, 4, device=device).to(dtype)
            assert_same_bits(
                posenc.add(x), definition(x, posenc.encode(3, 4, dtype=compute_dtype(dtype), device=device))
            )


@TORCH_OWN_WARNING
def test_forward_mode_of_add(device):
    x, tangent = torch.randn(2, 3, 4, device=device), torch.randn(2, 3, 4, device=device)
    positions = torch.arange(3, device=device)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, tangent)
        for call in (
            lambda x: posenc.add(x, input_scale=1.5),
            lambda x: posenc.add(x, positions=positions, input_scale=1.5),
            lambda x: posenc.add_(x.clone(), input_scale=1.5),
        ):
            value, derivative = forward_ad.unpack_dual(call(dual))
            assert_same_bits(value, posenc.add(x, input_scale=1.5))
            assert_same_bits(derivative, tangent * 1.5)


@TORCH_OWN_WARNING
def test_transforms_of_add(device):
    x = torch.randn(4, 3, 5, dtype=torch.float64, device=device)
    tangent = torch.randn_like(x)

    def loss(x: Tensor) -> Tensor:
        return range_sum(x).square().sum()

    expected = 5.0 * range_sum(x)
    assert torch.allclose(torch.func.grad(loss)(x), expected, rtol=1e-14, atol=0)
    value, derivative = torch.func.jvp(range_sum, (x,), (tangent,))
    assert_same_bits(value, range_sum(x))
    assert_same_bits(derivative, tangent * 2.5)
    assert torch.allclose(torch.vmap(torch.func.grad(loss))(x), expected, rtol=1e-14, atol=0)
    assert torch.allclose(torch.func.grad(lambda x: torch.vmap(loss)(x).sum())(x), expected, rtol=1e-14, atol=0)
    hessian = torch.func.hessian(loss)(x[0, :2])
    assert torch.allclose(hessian.view(10, 10), 12.5 * torch.eye(10, dtype=x.dtype, device=device), rtol=1e-14)


def test_vmap_of_add_runs_without_the_warning_of_a_fallback(device):
    x = torch.randn(4, 3, 5, device=device)
    expected = range_sum(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(torch.vmap(range_sum)(x), expected)
        assert_same_bits(torch.vmap(range_sum, in_dims=2, out_dims=1)(x.permute(1, 2, 0)), expected.transpose(0, 1))
        assert_same_bits(torch.vmap(torch.vmap(range_sum))(x[None]), expected[None])


@TORCH_OWN_WARNING
def test_transforms_of_add_with_positions(device):
    x, positions = torch.randn(2, 3, 5, dtype=torch.float64, device=device), torch.arange(3, device=device)

    def loss(x: Tensor) -> Tensor:
        return posenc.add(x, positions=positions, input_scale=2.5).square().sum()

    expected = 5.0 * posenc.add(x, positions=positions, input_scale=2.5)
    assert torch.allclose(torch.func.grad(loss)(x), expected, rtol=1e-14, atol=0)
    _, derivative = torch.func.jvp(
        lambda x: posenc.add(x, positions=positions, input_scale=2.5), (x,), (torch.ones_like(x),)
    )
    assert_same_bits(derivative, torch.full_like(x, 2.5))
