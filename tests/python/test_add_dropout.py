"""posenc.add_dropout: its values, the statistics of its masks, its gradients, and its ways through torch."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
import warnings

import posenc
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from cases import (
    DTYPES,
    LAYOUTS,
    OTHER_CONVENTION,
    READ_LAYOUTS,
    assert_same_bits,
    compute_dtype,
    many_dimensions,
    name_of,
    ops,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

PROBABILITIES = (0.001, 0.1, 0.5, 0.999)


def dropped_by(seed: int, x: Tensor, p: float, *args, **kwargs) -> Tensor:
    """The result under a seed."""
    torch.manual_seed(seed)
    return posenc.add_dropout(x, p, *args, **kwargs)[0]


def kept(p: float, *shape: int, device: str = "cpu") -> Tensor:
    """The mask of one call: 1.0 where an element is kept."""
    return (posenc.add_dropout(torch.full(shape, 9.0, device=device), p)[0] != 0).double()


def scaled(sums: Tensor, p: float) -> Tensor:
    """What a kept element is."""
    return (sums.to(compute_dtype(sums.dtype)) * (1.0 / (1.0 - p))).to(sums.dtype)


def assert_dropout_of(out: Tensor, sums: Tensor, p: float) -> None:
    """Each element of ``out`` is +0 or the scaled sum; at a fair rate."""
    assert_same_bits(out, torch.where(out != 0, scaled(sums, p), torch.zeros_like(sums)))
    rate = float((out == 0).double().mean())
    assert abs(rate - p) <= 5 * math.sqrt(p * (1 - p) / out.numel())


# ---- Values. ----


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("layout", READ_LAYOUTS)
def test_it_is_dropout_of_add_in_every_layout(device, dtype, layout):
    x = READ_LAYOUTS[layout](torch.full((3, 40, 8), 9.0, device=device).to(dtype))
    positions = torch.arange(40, device=device)
    for kwargs in ({}, {"input_scale": 1.7, "alpha": 0.3}, OTHER_CONVENTION):
        assert_dropout_of(posenc.add_dropout(x, 0.25, 5, **kwargs)[0], posenc.add(x, 5, **kwargs), 0.25)
        given = posenc.add_dropout(x, 0.25, positions=positions + 5, **kwargs)[0]
        assert_dropout_of(given, posenc.add(x, 5, **kwargs), 0.25)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_a_mask_does_not_depend_on_strides(device, dtype):
    x = torch.randn(3, 40, 7, device=device).to(dtype) + 9
    expected = dropped_by(1, x, 0.5, 2)
    for name, layout in LAYOUTS.items():
        assert_same_bits(dropped_by(1, layout(x), 0.5, 2), expected, name)
    many = many_dimensions(dtype, device) + 9  # more dimensions than a kernel takes
    assert_same_bits(dropped_by(1, many, 0.5), dropped_by(1, many.contiguous(), 0.5))


def test_a_mask_does_not_depend_on_where_positions_come_from(device):
    x = torch.full((4, 30, 3, 6), 9.0, device=device)
    positions = torch.arange(30, device=device)
    expected = dropped_by(1, x, 0.5, seq_dim=1)
    for given in (positions[:, None], positions[None, :, None].expand(4, 30, 3), positions.double()[:, None]):
        assert_same_bits(dropped_by(1, x, 0.5, positions=given), expected)
    by_sequence = dropped_by(1, x, 0.5, positions=torch.zeros(4, 1, 1, device=device))
    assert_same_bits(by_sequence != 0, expected != 0)


def test_the_mask_is_one_for_all_dtypes(device):
    x = torch.full((4, 30, 6), 9.0, device=device)
    masks = [dropped_by(1, x.to(dtype), 0.3) != 0 for dtype in DTYPES]
    for mask in masks[1:]:
        assert torch.equal(mask, masks[0])


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_p_of_0_and_1_draw_nothing(device, dtype):
    x = torch.randn(2, 30, 8, device=device).to(dtype)
    expected = dropped_by(1, x, 0.5)
    torch.manual_seed(1)
    out, rng_state = posenc.add_dropout(x, 0.0, 3)
    assert_same_bits(out, posenc.add(x, 3))
    assert rng_state.tolist() == [0, 0]
    assert_same_bits(posenc.add_dropout(x, 1.0, 3)[0], torch.zeros_like(x))
    assert posenc.add_dropout(x[:, :0], 0.5)[0].shape == (2, 0, 8)
    assert posenc.add_dropout(x[:0], 0.5, positions=torch.arange(30, device=device))[0].shape == (0, 30, 8)
    assert_same_bits(posenc.add_dropout(x, 0.5)[0], expected)


def test_dropped_elements_are_zero_also_where_x_is_not_finite(device):
    for value in (math.nan, math.inf):
        out = posenc.add_dropout(torch.full((50, 64), value, device=device), 0.5)[0]
        assert 0 < int((out == 0).sum()) < out.numel()


def test_strides_of_the_result_are_those_of_add(device):
    for name, layout in READ_LAYOUTS.items():
        x = layout(torch.randn(3, 4, 6, device=device))
        assert posenc.add_dropout(x, 0.5)[0].stride() == posenc.add(x).stride(), name


# ---- Random numbers. Bounds: five standard deviations, at a fixed seed. ----


@pytest.mark.parametrize("p", PROBABILITIES)
def test_the_rate(device, p):
    for shape in ((64, 1024, 64), (4096, 1000), (999, 1025)):
        mask = kept(p, *shape, device=device)
        assert abs(float(mask.mean()) - (1 - p)) <= 5 * math.sqrt(p * (1 - p) / mask.numel()), shape


@pytest.mark.parametrize("p", PROBABILITIES)
def test_no_row_column_or_place_in_a_block_is_preferred(device, p):
    rows, columns = 2048, 1024
    mask = kept(p, rows, columns, device=device)
    for dim, count in ((0, rows), (1, columns)):
        # Chi-square over the sums along one dimension: mean n, variance 2 n up to terms in 1 / count.
        sums = mask.sum(dim)
        variance = count * p * (1 - p)
        chi_square = float(((sums - count * (1 - p)) ** 2).sum() / variance)
        n = sums.numel()
        excess = max(0.0, (1 - 6 * p * (1 - p)) / variance)  # kurtosis of one sum
        assert abs(chi_square - n) <= 5 * math.sqrt((2 + excess) * n), dim
    places = mask.view(-1, 8).mean(0)
    assert float((places - (1 - p)).abs().max()) <= 5 * math.sqrt(p * (1 - p) / (rows * columns / 8))


@pytest.mark.parametrize("p", PROBABILITIES)
@pytest.mark.parametrize(
    "shift", [(0, 1), (1, 0), (1, 1), (1, -1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 0), (64, 0)], ids=str
)
def test_neighbours_are_independent(device, p, shift):
    mask = kept(p, 1024, 512, device=device) - (1 - p)
    products = mask * mask.roll(shift, (0, 1))
    # A product of two independent ones has mean 0 and variance (p (1 - p))^2.
    assert abs(float(products.mean())) <= 5 * p * (1 - p) / math.sqrt(mask.numel())


def assert_independent(masks: list[Tensor]) -> None:
    """Every two agree in half of their elements, also where one is moved against the other."""
    bound = 5 * math.sqrt(0.25 / masks[0].numel())
    for i in range(len(masks)):
        for j in range(i):
            for shift in (0, 1, 4, 8, 64, 512, 4096):
                agreement = (masks[i].flatten().roll(shift) == masks[j].flatten()).double().mean()
                assert abs(float(agreement) - 0.5) <= bound, (i, j, shift)


def test_calls_and_seeds_differ(device):
    masks = [kept(0.5, 256, 512, device=device) for _ in range(5)]
    for seed in (1, 2, 2**31 + 1, 2**32 - 1):  # torch's generator of the CPU knows 32 bits of a seed
        torch.manual_seed(seed)
        masks += [kept(0.5, 256, 512, device=device) for _ in range(2)]
    assert_independent(masks)


def test_states_differ(device):
    ones = torch.ones(256, 512, device=device)
    states = [(1, 0), (2, 0), (2**32 + 1, 0), (-1, 0), (1, 1), (1, 4), (1, 8), (1, 2**32), (0, 1)]
    assert_independent([ops._dropout_backward(ones, torch.tensor(s, device=device), 0.5, 1.0) for s in states])


def test_the_same_seed_gives_the_same_masks(device):
    x = torch.randn(5, 30, 8, device=device)
    torch.manual_seed(3)
    first = [posenc.add_dropout(x, 0.5)[0] for _ in range(3)]
    torch.manual_seed(3)
    for expected in first:
        assert_same_bits(posenc.add_dropout(x, 0.5)[0], expected)
    state = torch.get_rng_state() if device == "cpu" else torch.cuda.get_rng_state()
    after = posenc.add_dropout(x, 0.5)[0]
    torch.set_rng_state(state) if device == "cpu" else torch.cuda.set_rng_state(state)
    assert_same_bits(posenc.add_dropout(x, 0.5)[0], after)


def test_an_explicit_generator(device):
    x = torch.randn(5, 30, 8, device=device)
    a, b = (torch.Generator(device).manual_seed(9) for _ in range(2))
    before = dropped_by(1, x, 0.5)
    torch.manual_seed(1)
    first, second = (posenc.add_dropout(x, 0.5, generator=a)[0] for _ in range(2))
    assert not torch.equal(first, second)
    assert_same_bits(posenc.add_dropout(x, 0.5, generator=b)[0], first)
    assert_same_bits(posenc.add_dropout(x, 0.5, positions=torch.arange(30, device=device), generator=b)[0], second)
    assert_same_bits(posenc.add_dropout(x, 0.5)[0], before)  # the default one was not drawn from


def test_threads_do_not_change_a_mask():
    x = torch.randn(3, 700, 64)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        needy = x.clone().requires_grad_()
        out = dropped_by(1, needy, 0.3)
        out.sum().backward()
        results.append((out.detach(), needy.grad))
    assert_same_bits(results[1][0], results[0][0])
    assert_same_bits(results[1][1], results[0][1])


LEVEL = """
import hashlib, posenc, torch
torch.manual_seed(4)
digest = hashlib.sha256()
for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
    for shape in ((2, 9, 7), (3, 40, 512), (1, 5, 1003)):
        x = torch.linspace(-3, 5, shape[0] * shape[1] * shape[2], dtype=torch.float64).view(shape).to(dtype)
        x.requires_grad_()
        out = posenc.add_dropout(x, 0.3)[0]
        out.backward(torch.full_like(out, 0.7))
        for result in (out.detach(), x.grad):
            digest.update(result.contiguous().view(torch.uint8).numpy().tobytes())
print(digest.hexdigest())
"""


def test_instruction_sets_do_not_change_a_mask():
    digests = set()
    for level in ("baseline", "avx2", "avx512"):
        environment = {**os.environ, "POSENC_SIMD": level}
        command = [sys.executable, "-c", LEVEL]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        digests.add(process.stdout)
    assert len(digests) == 1


# ---- Gradients. ----


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("layout", READ_LAYOUTS)
def test_the_gradient_has_the_mask_of_the_result(device, dtype, layout):
    for at_positions in (False, True):
        x = (torch.randn(3, 40, 7, device=device) + 20).to(dtype).requires_grad_()
        where = {"positions": torch.arange(40, device=device)} if at_positions else {"offset": 3}
        out = posenc.add_dropout(x, 0.25, input_scale=1.7, **where)[0]
        weight = READ_LAYOUTS[layout]((torch.randn(3, 40, 7, device=device) + 20).to(dtype))
        (gradient,) = torch.autograd.grad(out, x, weight)
        expected = (weight.to(compute_dtype(dtype)) * (1.7 / 0.75)).to(dtype)
        assert_same_bits(gradient, torch.where(out != 0, expected, torch.zeros_like(expected)))
        assert 0 < int((gradient == 0).sum()) < gradient.numel()


def test_gradients_of_transposed_and_broadcast_inputs(device):
    base = torch.full((30, 4, 8), 9.0, device=device, requires_grad=True)
    out = posenc.add_dropout(base.transpose(0, 1), 0.5)[0]
    (gradient,) = torch.autograd.grad(out.sum(), base)
    assert_same_bits(gradient, (out != 0).float().transpose(0, 1).contiguous() * 2)
    one = torch.full((1, 1, 8), 9.0, device=device, requires_grad=True)
    out = posenc.add_dropout(one.expand(4, 30, 8), 0.5, positions=torch.zeros(30, device=device))[0]
    (gradient,) = torch.autograd.grad(out.sum(), one)
    assert_same_bits(gradient, 2 * (out != 0).float().sum((0, 1), keepdim=True))
    empty = torch.zeros(2, 0, 8, device=device, requires_grad=True)
    assert torch.autograd.grad(posenc.add_dropout(empty, 0.5)[0].sum(), empty)[0].shape == (2, 0, 8)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("at_positions", [False, True])
def test_first_and_second_derivatives(device, p, at_positions):
    where = {"positions": torch.tensor([[4], [9]], device=device)} if at_positions else {"offset": 3}

    def function(x: Tensor) -> Tensor:
        generator = torch.Generator(device).manual_seed(5)
        return posenc.add_dropout(x, p, input_scale=-1.5, generator=generator, **where)[0]

    for x in (torch.randn(2, 3, 5, device=device), torch.randn(2, 5, 3, device=device).mT):
        x = x.double().requires_grad_()
        assert gradcheck(function, (x,), check_batched_grad=True)
        assert gradgradcheck(function, (x,), check_batched_grad=True)


def test_positions_that_need_a_gradient_take_the_composite_form(device):
    x = torch.randn(2, 3, 4, dtype=torch.float64, device=device, requires_grad=True)
    positions = torch.randn(3, dtype=torch.float64, device=device, requires_grad=True)

    def function(x: Tensor, positions: Tensor) -> Tensor:
        generator = torch.Generator(device).manual_seed(5)
        out, rng_state = posenc.add_dropout(x, 0.5, positions=positions, generator=generator)
        assert rng_state.numel() == 0
        return out

    assert gradcheck(function, (x, positions))
    assert_same_bits(
        posenc.add_dropout(x, 1.0, positions=positions, generator=torch.Generator(device))[0], torch.zeros_like(x)
    )


def test_no_graph_and_nothing_of_the_size_of_x_is_kept(device):
    x = torch.randn(64, 64, device=device)
    for result in posenc.add_dropout(x, 0.5):
        assert not result.requires_grad
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        out, rng_state = posenc.add_dropout(x.requires_grad_(), 0.5)
    assert [t.numel() for t in saved] == [2]
    assert not rng_state.requires_grad
    with torch.no_grad():
        assert not posenc.add_dropout(x, 0.5)[0].requires_grad
    with torch.inference_mode():
        assert posenc.add_dropout(x, 0.5)[0].is_inference()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_draws_the_same_mask_again(device, use_reentrant):
    x = torch.randn(4, 30, 8, device=device, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        return posenc.add_dropout(x, 0.5)[0].square()

    torch.manual_seed(2)
    (expected,) = torch.autograd.grad(function(x).sum(), x)
    torch.manual_seed(2)
    checkpoint(function, x, use_reentrant=use_reentrant).sum().backward()
    assert_same_bits(x.grad, expected)


@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
def test_forward_mode_and_functorch_take_the_composite_form(device):
    x = torch.full((4, 50, 6), -9.0, dtype=torch.float64, device=device)
    with forward_ad.dual_level():
        out, rng_state = posenc.add_dropout(forward_ad.make_dual(x, torch.ones_like(x)), 0.5, input_scale=1.5)
        value, tangent = forward_ad.unpack_dual(out)
    assert rng_state.numel() == 0
    assert_dropout_of(value, posenc.add(x, input_scale=1.5), 0.5)
    assert_same_bits(tangent, (value != 0).double() * 3.0)
    gradient = torch.func.grad(lambda x: posenc.add_dropout(x, 0.5)[0].sum())(x)
    assert set(gradient.unique().tolist()) == {0.0, 2.0}
    plain = x[0]
    for randomness in ("different", "same"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            out = torch.vmap(lambda x: posenc.add_dropout(x, 0.5)[0], randomness=randomness)(x)
            inner = torch.vmap(lambda _: posenc.add_dropout(plain, 0.5)[0], randomness=randomness)(x)
        for result in (out, inner):
            assert torch.equal(result[0] != 0, result[1] != 0) == (randomness == "same")
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(lambda x: posenc.add_dropout(x, 0.5)[0])(x)


def test_a_tangent_on_the_gradient(device):
    x = torch.full((4, 50, 6), 9.0, dtype=torch.float64, device=device, requires_grad=True)
    out, rng_state = posenc.add_dropout(x, 0.5)
    with forward_ad.dual_level():
        grad = forward_ad.make_dual(torch.full_like(x, 3.0), torch.ones_like(x))
        value, tangent = forward_ad.unpack_dual(ops._dropout_backward(grad, rng_state, 0.5, 1.5))
    assert_same_bits(value.detach(), (out != 0).double() * 9.0)
    assert_same_bits(tangent.detach(), (out != 0).double() * 3.0)


def test_autocast_keeps_the_dtype_of_x(device):
    with torch.autocast(device, dtype=torch.bfloat16):
        for dtype in DTYPES:
            assert posenc.add_dropout(torch.randn(3, 4, device=device).to(dtype), 0.5)[0].dtype == dtype


# ---- Errors. ----


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda x: posenc.add_dropout(x, -0.1),
            ValueError,
            r"^add_dropout: p must be between 0 and 1, but got -0.1\.$",
        ),
        (lambda x: ops.add_dropout(x, 1.5), ValueError, r"^add_dropout: p must be between 0 and 1, but got 1.5\.$"),
        (lambda x: posenc.add_dropout(x, math.nan), ValueError, "p must be between 0 and 1, but got nan"),
        (lambda x: posenc.add_dropout(x.to("meta"), 2.0), ValueError, "p must be between 0 and 1, but got 2"),
        (lambda x: posenc.add_dropout(x, "0.5"), TypeError, "^add_dropout: p must be a float, but got str"),
        (lambda x: posenc.add_dropout(x, 0.5, generator=3), TypeError, "generator must be a torch.Generator"),
        (lambda x: posenc.add_dropout(x[0], 0.5), ValueError, "^add_dropout: x must have at least 2 dimensions"),
        (lambda x: posenc.add_dropout(x.int(), 0.5), TypeError, "^add_dropout: x must be float64"),
        (lambda x: posenc.add_dropout(x, 0.5, seq_dim=7), IndexError, "^add_dropout: seq_dim must be in the range"),
        (lambda x: posenc.add_dropout(x, 0.5, 3, torch.arange(3)), ValueError, "^add_dropout: offset must be 0"),
        (lambda x: posenc.add_dropout(x, 0.5, order="x"), ValueError, "^add_dropout: order must be"),
        (
            lambda x: ops._dropout_backward(x, torch.zeros(3, dtype=torch.int64), 0.5, 1.0),
            ValueError,
            r"^_dropout_backward: rng_state must have shape \[2\], but got \[3\]\.$",
        ),
        (lambda x: ops._dropout_backward(x, torch.zeros(2), 0.5, 1.0), TypeError, "rng_state must be int64"),
    ],
)
def test_errors(call, error, text):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    with pytest.raises(error, match=text):
        call(torch.zeros(3, 4))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_generator_of_another_device_is_refused(device):
    with pytest.raises(ValueError, match=r"^add_dropout: generator must be of the device of x"):
        posenc.add_dropout(torch.zeros(3, 4, device=device), 0.5, generator=torch.Generator())


# ---- Routes. ----


@pytest.fixture
def fresh_compilations():
    torch._dynamo.reset()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_compilations")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_code_gives_the_masks_and_gradients_of_eager(device, dynamic, backend):
    model = posenc.nn.PositionalEncoding(8, dropout=0.3, input_scale=1.5).to(device)

    def step(x: Tensor, positions: Tensor | None = None) -> Tensor:
        return model(x.abs(), 0, positions).mul(2.0)

    compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic)
    for length in (5, 9):
        for positions in (None, torch.arange(length, device=device)):
            results = []
            for call in (step, compiled):
                x = torch.linspace(1, 2, 2 * length * 8, device=device).view(2, length, 8).requires_grad_()
                torch.manual_seed(1)
                out = [call(x, positions) for _ in range(2)]
                assert not torch.equal(out[0], out[1])
                (out[0] + 3 * out[1]).sum().backward()
                results.append((*out, x.grad))
            for actual, expected in zip(results[1], results[0], strict=True):
                assert_same_bits(actual.detach(), expected.detach())


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_module_in_training_draws_at_each_call(strict, tmp_path):
    model = posenc.nn.PositionalEncoding(8, dropout=0.5)
    x = torch.full((2, 5, 8), 9.0)
    dynamic = torch.export.Dim.DYNAMIC
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: dynamic, 1: dynamic},), strict=strict)
    path = tmp_path / "model.pt2"
    torch.export.save(exported, path)
    for module in (exported.module(), torch.export.load(path).module(), exported.run_decompositions().module()):
        longer = torch.full((3, 50, 8), 9.0)
        torch.manual_seed(1)
        first, second = module(longer), module(longer)
        assert not torch.equal(first, second)
        assert_same_bits(first, dropped_by(1, longer, 0.5))


def twice(x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    a, _ = torch.ops.posenc.add_dropout(x, 0.5)
    b, _ = torch.ops.posenc.add_dropout(x, 0.5)
    c, _ = torch.ops.posenc.add_dropout(x, 0.5, positions, input_scale=2.0)
    return a, b, c


def test_torchscript_does_not_merge_equal_calls(device):
    x = torch.full((4, 30, 8), 9.0, device=device, requires_grad=True)
    positions = torch.arange(30, device=device)
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(twice), buffer)
    buffer.seek(0)
    for function in (torch.jit.script(twice), torch.jit.load(buffer)):
        for _ in range(3):  # the third run is optimised
            torch.manual_seed(1)
            results = function(x, positions)
        assert not torch.equal(results[0], results[1])
        torch.manual_seed(1)
        for actual, expected in zip(results, twice(x, positions), strict=True):
            assert_same_bits(actual.detach(), expected.detach())


def test_a_scripted_module_drops_as_eager(device):
    for kwargs in ({}, {"batch_first": False}):
        module = posenc.nn.PositionalEncoding(8, dropout=0.5, input_scale="sqrt", order="split", **kwargs).to(device)
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.script(module), buffer)
        buffer.seek(0)
        loaded = torch.jit.load(buffer)
        x = torch.randn(4, 30, 8, device=device)
        seq_len = 30 if not kwargs else 4
        for args in ((x,), (x, 3), (x, 0, torch.arange(seq_len, device=device))):
            torch.manual_seed(1)
            expected = module(*args)
            torch.manual_seed(1)
            assert_same_bits(loaded(*args), expected)
        assert_same_bits(loaded.eval()(x), module.eval()(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_the_module_is_the_operator_in_training_and_add_in_evaluation(device, dtype):
    module = posenc.nn.PositionalEncoding(8, dropout=0.3, batch_first=False, input_scale=2.0, order="split").to(device)
    x = torch.randn(30, 4, 8, device=device).to(dtype)
    torch.manual_seed(1)
    actual = module(x, 5)
    assert_same_bits(actual, dropped_by(1, x, 0.3, 5, seq_dim=0, input_scale=2.0, order="split"))
    torch.manual_seed(1)
    assert_same_bits(module(x, positions=torch.arange(5, 35, device=device)), actual)
    torch.manual_seed(1)
    assert_same_bits(module(x, torch.tensor(5, device=device)), actual)
    assert_same_bits(module.eval()(x, 5), posenc.add(x, 5, seq_dim=0, input_scale=2.0, order="split"))


def test_fake_and_meta_tensors(device):
    x = torch.empty(2, 3, 8, device="meta").transpose(0, 1)
    out, rng_state = posenc.add_dropout(x, 0.5)
    assert (out.stride(), rng_state.shape, rng_state.dtype) == (x.stride(), (2,), torch.int64)
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(2, 3, 8, device=device, requires_grad=True)
        out, rng_state = posenc.add_dropout(x, 0.5, generator=torch.Generator(device))
        assert (out.device.type, rng_state.device.type) == (device, device)
        out.sum().backward()
        assert x.grad.shape == x.shape


@pytest.mark.parametrize("device", ["cuda"], indirect=True)
def test_a_captured_graph_draws_a_new_mask_at_each_replay(device):
    x = torch.full((8, 64, 32), 9.0, device=device, requires_grad=True)
    posenc.add_dropout(x, 0.5)[0].sum().backward()
    graph = torch.cuda.CUDAGraph()
    x.grad = None
    with torch.cuda.graph(graph):
        out, rng_state = posenc.add_dropout(x, 0.5)
        (gradient,) = torch.autograd.grad(out.sum(), x)
    results = []
    for _ in range(3):
        graph.replay()
        assert torch.equal(gradient != 0, out != 0)
        results.append((out.detach().clone(), rng_state.clone()))
    for i in range(3):
        for j in range(i):
            assert not torch.equal(results[i][0], results[j][0])
            assert not torch.equal(results[i][1], results[j][1])


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_a_state_gives_the_same_mask_on_every_device(device, dtype):
    state = torch.tensor([123456789012345, 8])
    x = torch.randn(3, 50, 37).to(dtype) + 9
    out = ops._dropout_backward(x.to(device), state.to(device), 0.3, 1.5)
    assert_same_bits(out.cpu(), ops._dropout_backward(x, state, 0.3, 1.5))
