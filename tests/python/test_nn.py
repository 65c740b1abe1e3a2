"""posenc.nn.PositionalEncoding: what it computes, what it stores, what it loads."""

from __future__ import annotations

import copy
import io
import pickle
import re
import warnings

import numpy
import posenc
import pytest
import torch
from cases import DTYPES, OTHER_CONVENTION, assert_same_bits, compute_dtype, definition, name_of
from posenc.nn import PositionalEncoding
from torch import Tensor


def expected(x: Tensor, offset: int = 0, *, scale: float = 1.0, alpha: float | Tensor = 1.0, **convention) -> Tensor:
    """The definition for x of shape (.., seq_len, d_model)."""
    encoding = posenc.encode(
        x.size(-2), x.size(-1), offset, dtype=compute_dtype(x.dtype), device=x.device, **convention
    )
    return definition(x, encoding, scale, alpha)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
@pytest.mark.parametrize("shape", [(2, 5, 8), (5, 8), (1, 1, 8), (0, 5, 8), (2, 0, 8), (2, 3, 5, 8)], ids=str)
def test_it_adds_the_encoding(device, shape, dtype):
    x = torch.randn(shape, device=device).to(dtype)
    module = PositionalEncoding(8)
    assert_same_bits(module(x), expected(x))
    assert_same_bits(module(x, 7), expected(x, 7))
    assert_same_bits(module(x, offset=-7), expected(x, -7))
    assert_same_bits(module(x, 2**62), expected(x, 2**62))


@pytest.mark.parametrize("name", ["base", "freq_shift", "position_scale", "order", "odd"])
def test_each_convention_argument_is_honoured(device, name):
    convention = {name: OTHER_CONVENTION[name]}
    x = torch.randn(2, 5, 7, device=device)
    for learnable in (False, True):
        module = PositionalEncoding(7, learnable_alpha=learnable, **convention).to(device)
        assert_same_bits(module(x, 3), expected(x, 3, **convention))
        assert_same_bits(module(x, positions=torch.arange(3, 8, device=device)), expected(x, 3, **convention))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_factors(device, dtype):
    x = torch.randn(2, 5, 8, device=device).to(dtype)
    assert_same_bits(PositionalEncoding(8, input_scale=1.7, alpha=0.3)(x), expected(x, scale=1.7, alpha=0.3))
    assert_same_bits(PositionalEncoding(8, input_scale="sqrt")(x), expected(x, scale=8**0.5))


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_batch_first_says_where_the_tokens_are(device, dtype):
    x = torch.randn(3, 5, 8, device=device).to(dtype)
    for kwargs in ({}, {"learnable_alpha": True}):
        first = PositionalEncoding(8, **kwargs).to(device)
        second = PositionalEncoding(8, batch_first=False, **kwargs).to(device)
        flipped = x.transpose(0, 1)
        for args in (
            (0,),
            (7,),
            (torch.tensor(4, device=device),),
            (torch.tensor([4, 0, 100], device=device),),
            (0, torch.tensor([3, 1, 4, 1, 5], device=device)),
            (0, torch.randint(-50, 50, (3, 5), device=device)),  # (batch, seq_len) either way
        ):
            assert_same_bits(second(flipped, *args), first(x, *args).transpose(0, 1), (kwargs, args))
        assert_same_bits(second(x[0]), first(x[0]))  # without a batch, the tokens come first anyway


@pytest.mark.parametrize("offset_dtype", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=name_of)
def test_offset_may_be_a_tensor(device, offset_dtype):
    module = PositionalEncoding(8)
    x = torch.randn(3, 5, 8, device=device)
    assert_same_bits(module(x, torch.tensor(9, dtype=offset_dtype, device=device)), expected(x, 9))
    for offsets in ([9, 0, 200], [7, 7, 7]):
        actual = module(x, torch.tensor(offsets, device=device).to(torch.uint8).to(offset_dtype))
        assert_same_bits(actual, torch.stack([expected(x[i], offset) for i, offset in enumerate(offsets)]))
    assert_same_bits(module(x[0], torch.tensor(9, dtype=offset_dtype, device=device)), expected(x[0], 9))


def test_an_offset_tensor_of_a_large_value_is_exact(device):
    x = torch.randn(1, 3, 8, device=device)
    for offset in (2**53 + 1, -(2**62), 2**40):
        assert_same_bits(PositionalEncoding(8)(x, torch.tensor(offset, device=device)), expected(x, offset))


def test_positions_replace_the_offset(device):
    module = PositionalEncoding(8)
    x = torch.randn(3, 5, 8, device=device)
    positions = torch.tensor([3, 0, 7, 7, -2], device=device)
    rows = posenc.encode(positions, 8)
    assert_same_bits(module(x, positions=positions), x + rows)
    assert_same_bits(module(x, 0, positions), x + rows)
    assert_same_bits(module(x, positions=positions.double() / 4), x + posenc.encode(positions.double() / 4, 8))
    each = torch.randint(0, 100, (3, 5), device=device)
    assert_same_bits(module(x, positions=each), x + posenc.encode(each, 8))


def test_step_by_step_equals_the_whole(device):
    module = PositionalEncoding(8, input_scale="sqrt")
    x = torch.randn(2, 9, 8, device=device)
    steps = [module(x[:, i : i + 1], offset=i) for i in range(9)]
    assert_same_bits(torch.cat(steps, 1), module(x))


# ---- max_len. ----


def test_there_is_no_limit_unless_max_len_is_given(device):
    x = torch.zeros(1, 6000, 4, device=device)
    assert_same_bits(PositionalEncoding(4)(x, 10**9), expected(x, 10**9))


def test_max_len_is_a_checked_limit(device):
    module = PositionalEncoding(4, max_len=10)
    x = torch.zeros(2, 4, 4, device=device)
    assert_same_bits(module(x, 6), expected(x, 6))
    assert_same_bits(module(x.expand(2, 4, 4)[:, :0], 10), x[:, :0])
    for offset, seq_len in ((7, 4), (10, 1), (-1, 4), (0, 11), (2**62, 4)):
        text = f"max_len 10, but got offset {offset} and seq_len {seq_len}."
        with pytest.raises(ValueError, match=re.escape(text)):
            module(torch.zeros(2, seq_len, 4, device=device), offset)
    # Neither is looked at where that would wait for the device.
    assert_same_bits(module(x, torch.tensor(100, device=device)), expected(x, 100))
    assert_same_bits(module(x, positions=torch.arange(100, 104, device=device)), expected(x, 100))


def test_max_len_may_be_given_in_second_place():
    assert PositionalEncoding(4, 0.1, 10).max_len == 10
    assert PositionalEncoding(4, 0.1).dropout == 0.1


# ---- A learnable alpha. ----


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_a_learnable_alpha_starts_at_alpha_and_has_a_gradient(device, dtype):
    module = PositionalEncoding(8, learnable_alpha=True, alpha=0.75, input_scale=1.5).to(device)
    assert [name for name, _ in module.named_parameters()] == ["alpha"]
    assert module.alpha.shape == ()
    assert module.alpha.item() == 0.75
    x = torch.randn(2, 5, 8, device=device).to(dtype)
    compute = compute_dtype(dtype)
    encoding = posenc.encode(5, 8, 3, dtype=compute, device=device)
    result = module(x, 3)
    assert_same_bits(result, (x.to(compute) * 1.5 + module.alpha * encoding).to(dtype))
    result.to(compute).sum().backward()
    # The sum of 80 products of at most 1, in any sequence.
    reference = encoding.double().sum() * 2
    assert abs(float(module.alpha.grad) - float(reference)) <= 80 * 80 * 2.0**-24


def test_a_learnable_alpha_learns(device):
    module = PositionalEncoding(8, learnable_alpha=True).to(device)
    target = 0.25 * posenc.encode(5, 8, device=device)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01)
    for _ in range(50):
        loss = (module(torch.zeros(1, 5, 8, device=device)) - target).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert abs(module.alpha.item() - 0.25) < 1e-3


def test_a_learnable_alpha_takes_device_and_dtype(device):
    module = PositionalEncoding(8, learnable_alpha=True, device=device, dtype=torch.float64)
    assert module.alpha.dtype == torch.float64
    assert module.alpha.device.type == device
    assert PositionalEncoding(8, learnable_alpha=True, device="meta").alpha.is_meta


def test_a_learnable_alpha_is_stored(device):
    module = PositionalEncoding(8, learnable_alpha=True, alpha=0.25).to(device)
    other = PositionalEncoding(8, learnable_alpha=True)
    other.load_state_dict(module.state_dict())
    assert list(module.state_dict()) == ["alpha"]
    assert other.alpha.item() == 0.25


# ---- Dropout. ----


def test_dropout_is_applied_to_the_sum_in_training_only(device):
    module = PositionalEncoding(64, dropout=0.25, input_scale=2.0)
    x = torch.ones(8, 100, 64, device=device)
    kept = expected(x, scale=2.0)
    result = module(x)
    dropped = result == 0.0
    # 51,200 trials: a standard deviation of 0.0019.
    assert abs(float(dropped.double().mean()) - 0.25) < 0.01
    assert_same_bits(result[~dropped], (kept * (1 / 0.75))[~dropped])
    assert_same_bits(module.eval()(x), kept)
    assert not torch.equal(module.train()(x), result)


def test_dropout_of_0_and_1(device):
    x = torch.ones(2, 5, 8, device=device)
    assert_same_bits(PositionalEncoding(8, dropout=0.0)(x), expected(x))
    assert_same_bits(PositionalEncoding(8, dropout=1.0)(x), torch.zeros_like(x))
    assert_same_bits(PositionalEncoding(8, dropout=1.0).eval()(x), expected(x))


# ---- State. ----


def test_there_is_no_state(device):
    module = PositionalEncoding(512, dropout=0.1, max_len=5000).to(device)
    assert module.state_dict() == {}
    assert list(module.parameters()) == []
    assert list(module.buffers()) == []
    module(torch.zeros(2, 3, 512, device=device))
    assert module.state_dict() == {}
    module.load_state_dict({})


TABLE_NAMES = ("pe", "weights", "weight", "_float_tensor", "inv_freq", "freqs", "positional_embedding")


@pytest.mark.parametrize("name", TABLE_NAMES)
def test_a_checkpoint_with_a_table_loads_and_says_once_that_it_is_dropped(name):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), PositionalEncoding(4))
    state = {**model.state_dict(), f"1.{name}": torch.zeros(1, 5000, 4)}
    keys = list(state)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = model.load_state_dict(state, strict=True)
    assert result.missing_keys == []
    assert result.unexpected_keys == []
    assert [f"1.{name}" in str(w.message) for w in caught] == [True]
    assert list(state) == keys  # the caller's checkpoint is left alone
    assert model[1].state_dict() == {}


def test_all_tables_of_one_module_are_said_in_one_warning():
    module = PositionalEncoding(4, learnable_alpha=True)
    state = {**{name: torch.zeros(3) for name in TABLE_NAMES}, "alpha": torch.tensor(0.5)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module.load_state_dict(state)
    assert len(caught) == 1
    assert all(name in str(caught[0].message) for name in TABLE_NAMES)
    assert module.alpha.item() == 0.5


@pytest.mark.parametrize("key", ["1.table", "1.pe.weight", "1.alpha", "pe", "2.pe", "1.pes"])
def test_any_other_unknown_key_still_fails(key):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), PositionalEncoding(4))
    state = {**model.state_dict(), key: torch.zeros(3)}
    with pytest.raises(RuntimeError, match=re.escape(f'"{key}"')):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False).unexpected_keys == [key]


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_casts_and_meta_construction_change_nothing(device, dtype):
    x = torch.randn(2, 300, 8, device=device).to(dtype)
    for offset in (0, 10**6):
        plain = PositionalEncoding(8, input_scale=1.5)(x, offset)
        for cast in (
            lambda m: m.half(),
            lambda m: m.bfloat16(),
            lambda m: m.double(),
            lambda m: m.to(torch.bfloat16),
            lambda m: m.to(device),
            lambda m: m.requires_grad_(False),
        ):
            assert_same_bits(cast(PositionalEncoding(8, input_scale=1.5))(x, offset), plain)
        with torch.device("meta"):
            module = PositionalEncoding(8, input_scale=1.5)
        assert_same_bits(module(x, offset), plain)
        assert_same_bits(module.to_empty(device=device)(x, offset), plain)
    torch.set_default_dtype(torch.float64)
    assert_same_bits(PositionalEncoding(8, input_scale=1.5)(x, 10**6), plain)


def test_meta_input_gives_meta_output():
    for kwargs in ({}, {"learnable_alpha": True, "device": "meta"}):
        result = PositionalEncoding(8, **kwargs)(torch.empty(2, 5, 8, dtype=torch.bfloat16, device="meta"))
        assert (result.shape, result.dtype, result.device.type) == ((2, 5, 8), torch.bfloat16, "meta")


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
def test_copies_compute_the_same(device, how):
    def saved(module: torch.nn.Module) -> torch.nn.Module:
        buffer = io.BytesIO()
        torch.save(module, buffer)
        buffer.seek(0)
        return torch.load(buffer, weights_only=False)

    copies = {"deepcopy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m)), "torch.save": saved}
    x = torch.randn(2, 5, 7, device=device)
    for kwargs in ({"max_len": 10, "batch_first": False, **OTHER_CONVENTION}, {"learnable_alpha": True, "alpha": 0.5}):
        module = PositionalEncoding(7, dropout=0.1, input_scale="sqrt", **kwargs).to(device).eval()
        other = copies[how](module)
        assert_same_bits(other(x, 3), module(x, 3))
        assert repr(other) == repr(module)


def test_two_calls_before_one_backward(device):
    module = PositionalEncoding(8, dropout=0.0, learnable_alpha=True).to(device)
    x = torch.randn(2, 5, 8, device=device, requires_grad=True)
    (module(x).sum() + module(x[:, :3], 2).sum()).backward()
    assert module.alpha.grad is not None
    assert_same_bits(x.grad[:, :3], torch.full_like(x[:, :3], 2.0))


def test_x_is_not_changed(device):
    x = torch.randn(2, 5, 8, device=device)
    before = x.clone()
    for kwargs in ({}, {"dropout": 0.5}, {"learnable_alpha": True}, {"alpha": 0.0}):
        result = PositionalEncoding(8, **kwargs).to(device)(x)
        assert result.data_ptr() != x.data_ptr()
    assert_same_bits(x, before)


# ---- Construction. ----


def test_repr_says_what_differs_from_the_defaults():
    assert repr(PositionalEncoding(512)) == "PositionalEncoding(512)"
    assert repr(PositionalEncoding(512, dropout=0.1)) == "PositionalEncoding(512, dropout=0.1)"
    module = PositionalEncoding(
        6, 0.5, 99, batch_first=False, input_scale=2.0, alpha=0.5, learnable_alpha=True, **OTHER_CONVENTION
    )
    for part in (
        *("6, dropout=0.5", "max_len=99", "batch_first=False", "input_scale=2.0", "alpha=0.5", "learnable_alpha=True"),
        *("base=100.0", "freq_shift=1.0", "position_scale=-0.5", "order='split_cos_first'", "odd='zero'"),
    ):
        assert part in repr(module)


def test_arguments_after_max_len_are_keyword_only():
    with pytest.raises(TypeError):
        PositionalEncoding(8, 0.1, 100, True)


def test_integers_of_numpy_are_integers():
    module = PositionalEncoding(numpy.int64(8), max_len=numpy.int64(10))
    x = torch.zeros(1, 3, 8)
    assert_same_bits(module(x, numpy.int64(2)), expected(x, 2))


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"d_model": 0}, ValueError, "d_model must be at least 1, but got 0"),
        ({"d_model": 8.0}, TypeError, "d_model must be an int, but got float"),
        ({"dropout": 1.5}, ValueError, "dropout must be between 0 and 1, but got 1.5"),
        ({"dropout": -0.1}, ValueError, "dropout must be between 0 and 1, but got -0.1"),
        ({"dropout": float("nan")}, ValueError, "dropout must be between 0 and 1, but got nan"),
        ({"dropout": "0.1"}, TypeError, "dropout must be a float, but got str"),
        ({"max_len": -1}, ValueError, "max_len must be at least 0, but got -1"),
        ({"max_len": 10.0}, TypeError, "max_len must be an int, but got float"),
        ({"input_scale": "root"}, ValueError, 'input_scale must be a float or "sqrt", but got "root"'),
        ({"alpha": None}, TypeError, "alpha must be a float, but got NoneType"),
        ({"base": -1.0}, ValueError, "base must be finite and greater than 0, but got -1"),
        ({"freq_shift": float("inf")}, ValueError, "freq_shift must be finite, but got inf"),
        ({"position_scale": float("nan")}, ValueError, "position_scale must be finite, but got nan"),
        ({"order": "mixed"}, ValueError, 'but got "mixed"'),
        ({"odd": "even"}, ValueError, 'but got "even"'),
        ({"d_model": 7, "odd": "error"}, ValueError, "d_model must be even"),
        ({"d_model": 4, "freq_shift": 2.0}, ValueError, "freq_shift must leave a denominator"),
        ({"order": 3}, TypeError, "order must be a str, but got int"),
    ],
    ids=str,
)
def test_a_bad_construction_is_refused_at_once(kwargs, error, text):
    with pytest.raises(error, match=re.escape(text)):
        PositionalEncoding(**{"d_model": 8, **kwargs})


def test_a_bad_call_is_refused(device):
    module = PositionalEncoding(8)
    x = torch.zeros(2, 3, 8, device=device)
    positions = torch.arange(3, device=device)
    cases = (
        ((torch.zeros(2, 3, 7, device=device),), ValueError, "d_model 8, but got [2, 3, 7]"),
        ((torch.zeros(8, device=device),), ValueError, "but got [8]"),
        ((x.to(torch.int64),), TypeError, "x must be float64, float32, bfloat16 or float16, but got int64"),
        ((x, 1, positions), ValueError, "offset must be 0 where positions are given, but got 1"),
        ((x, torch.tensor(1, device=device), positions), ValueError, "offset must be 0 where positions are given"),
        (
            (x, torch.tensor(1.0, device=device)),
            TypeError,
            "offset must be an int or an integer Tensor, but got torch.float32",
        ),
        (
            (x, torch.tensor(True, device=device)),
            TypeError,
            "offset must be an int or an integer Tensor, but got torch.bool",
        ),
        ((x, 1.5), TypeError, "offset must be an int, but got float"),
        ((x, 0, torch.arange(4, device=device)), ValueError, "positions must broadcast"),
        ((x, 0, torch.ones(3, dtype=torch.bool, device=device)), TypeError, "positions must be integer"),
        ((x, 2**63 - 2), ValueError, "offset + seq_len must be at most 2^63 - 1"),
        ((x, torch.tensor([1, 2, 3], device=device)), ValueError, "must"),
    )
    for args, error, text in cases:
        with pytest.raises(error, match=re.escape(text)):
            module(*args)
    assert_same_bits(module(x), expected(x))
