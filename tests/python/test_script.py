"""TorchScript: scripted, traced, frozen, saved and loaded modules give the bits of eager code."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import posenc
import pytest
import torch
from cases import DTYPES, OTHER_CONVENTION, assert_same_bits, name_of
from torch import Tensor

# TorchScript is deprecated as a whole. Tracing says of every check of a shape that it is not in the trace.
pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated\. Please :FutureWarning"),
    pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean:torch.jit.TracerWarning"),
]

# What an operator raises arrives as RuntimeError, what a script raises itself as torch.jit.Error, a plain Exception.
SCRIPT_ERRORS = (RuntimeError, torch.jit.Error)

CONSTRUCTIONS = (
    {},
    {"batch_first": False},
    {"input_scale": "sqrt", "alpha": 0.3},
    {"learnable_alpha": True, "alpha": 0.7, "input_scale": 1.5},
    {"learnable_alpha": True, "batch_first": False},
    {"max_len": 5000},
    OTHER_CONVENTION,
    {"dropout": 0.1, "order": "split"},
)


def saved_and_loaded(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


ROUTES: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
    "script": torch.jit.script,
    "saved": lambda m: saved_and_loaded(torch.jit.script(m)),
    "frozen": lambda m: torch.jit.freeze(torch.jit.script(m)),
    "frozen and saved": lambda m: saved_and_loaded(torch.jit.freeze(torch.jit.script(m))),
    "optimized": lambda m: torch.jit.optimize_for_inference(torch.jit.script(m)),
}


def inputs(device: str, dtype: torch.dtype = torch.float32) -> list[tuple]:
    """Calls of a module: lengths, offsets of every kind, positions."""
    x = torch.randn(3, 3, 8, device=device).to(dtype)  # as many tokens as sequences, whatever comes first
    return [
        (x,),
        (x, 7),
        (torch.randn(3, 20, 8, device=device).to(dtype).transpose(0, 1)[:3], 3),
        (x[0], 2),
        (x, torch.tensor(4, device=device)),
        (x, torch.tensor([4, 0, 100], device=device)),
        (x, 0, torch.tensor([0, 5, 1], device=device)),
        (x, 0, torch.tensor([[0, 5, 1], [2, 2, 2], [-1, 10**6, 3]], device=device)),
        (x, 0, torch.tensor([0.5, -2.25, 1e-3], device=device)),
    ]


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("kwargs", CONSTRUCTIONS, ids=str)
def test_a_scripted_module_equals_eager(device, kwargs, route):
    module = posenc.nn.PositionalEncoding(8, **kwargs).to(device).eval()
    scripted = ROUTES[route](module)
    for args in inputs(device):
        for _ in range(3):  # the profiling executor changes the graph after the first runs
            assert_same_bits(scripted(*args), module(*args), args[1:])


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_a_scripted_module_takes_every_dtype(device, dtype):
    for kwargs in ({"alpha": 0.3}, {"alpha": 0.3, "learnable_alpha": True}):
        module = posenc.nn.PositionalEncoding(8, **kwargs).to(device)
        scripted = saved_and_loaded(torch.jit.script(module))
        for args in inputs(device, dtype):
            assert_same_bits(scripted(*args), module(*args), args[1:])


def test_a_scripted_module_takes_keywords(device):
    module = posenc.nn.PositionalEncoding(8).to(device)
    scripted = torch.jit.script(module)
    x = torch.randn(2, 3, 8, device=device)
    positions = torch.tensor([3, 1, 2], device=device)
    assert_same_bits(scripted(x, offset=5), module(x, offset=5))
    assert_same_bits(scripted(x, positions=positions), module(x, positions=positions))


def test_a_scripted_alpha_learns(device):
    module = posenc.nn.PositionalEncoding(8, learnable_alpha=True, input_scale=2.0).to(device)
    scripted = torch.jit.script(module)
    x = torch.randn(2, 3, 8, device=device)
    gradients = []
    for call in (module, scripted):
        needy = x.clone().requires_grad_()
        call.zero_grad()
        call(needy, 3).square().sum().backward()
        gradients.append((needy.grad, call.alpha.grad.clone()))
    assert_same_bits(gradients[1][0], gradients[0][0])
    assert_same_bits(gradients[1][1], gradients[0][1])
    assert float(gradients[0][1].abs()) > 0.0


def test_dropout_in_a_scripted_module_follows_the_mode(device):
    scripted = torch.jit.script(posenc.nn.PositionalEncoding(64, dropout=0.5).to(device))
    x = torch.ones(4, 50, 64, device=device)
    zeros = (scripted(x) == 0.0).double().mean()
    assert abs(float(zeros) - 0.5) < 0.05  # 12,800 trials: over ten standard deviations
    scripted.eval()
    assert_same_bits(scripted(x), posenc.add(x))


@pytest.mark.parametrize("kwargs", CONSTRUCTIONS, ids=str)
def test_a_traced_module_runs_at_another_length(device, kwargs):
    module = posenc.nn.PositionalEncoding(8, **kwargs).to(device).eval()
    traced = saved_and_loaded(torch.jit.trace(module, torch.randn(2, 5, 8, device=device)))
    for shape in ((2, 5, 8), (3, 17, 8), (1, 1, 8), (2, 0, 8)):
        x = torch.randn(shape, device=device)
        assert_same_bits(traced(x), module(x), shape)
    example = {"x": torch.randn(5, 5, 8, device=device), "positions": torch.arange(5, device=device)}
    traced = torch.jit.trace(module, example_kwarg_inputs=example)
    x, positions = torch.randn(7, 7, 8, device=device), torch.arange(7, device=device) * 3
    assert_same_bits(traced(x=x, positions=positions), module(x, positions=positions))


def test_max_len_is_checked_in_a_scripted_module(device):
    module = posenc.nn.PositionalEncoding(8, max_len=10).to(device)
    scripted = saved_and_loaded(torch.jit.script(module))
    x = torch.randn(2, 4, 8, device=device)
    assert_same_bits(scripted(x, 6), module(x, 6))
    text = "PositionalEncoding: offset and offset + seq_len must be between 0 and max_len 10, "
    text += "but got offset 7 and seq_len 4."
    with pytest.raises(ValueError, match=re.escape(text)):
        module(x, 7)
    with pytest.raises(SCRIPT_ERRORS, match=re.escape(text)):
        scripted(x, 7)
    with pytest.raises(SCRIPT_ERRORS, match="offset -1"):
        scripted(x, -1)


def test_errors_of_operators_keep_their_text(device):
    scripted = torch.jit.script(posenc.nn.PositionalEncoding(8).to(device))
    for args, text in (
        ((torch.zeros(2, 3, 8, dtype=torch.int64, device=device),), "must be float64, float32, bfloat16 or float16"),
        ((torch.zeros(2, 3, 7, device=device),), "PositionalEncoding: x must"),
        ((torch.zeros(2, 3, 8, device=device), 0, torch.zeros(4, device=device)), "add: positions must broadcast"),
        (
            (torch.zeros(2, 3, 8, device=device), 1, torch.zeros(3, device=device)),
            "offset must be 0 where positions are given",
        ),
    ):
        with pytest.raises(SCRIPT_ERRORS, match=re.escape(text)):
            scripted(*args)
    x = torch.zeros(2, 3, 8, device=device)
    assert_same_bits(scripted(x), posenc.add(x))


def call_operators(x: Tensor, positions: Tensor) -> Tensor:
    y = torch.ops.posenc.add(x, 3)
    y = torch.ops.posenc.add(y, positions, alpha=0.5)
    torch.ops.posenc.add_(y, 2, seq_dim=0)
    torch.ops.posenc.add_(y, torch.tensor([5]))
    out = torch.empty_like(x)
    torch.ops.posenc.add(y, 1, out=out)
    table = torch.ops.posenc.encode(x.size(1), x.size(2), 4, order="split", dtype=x.dtype, device=x.device)
    torch.ops.posenc.encode(positions, x.size(2), base=100.0, out=table)
    return out + table + torch.ops.posenc.encode(torch.tensor([3]), x.size(2), dtype=x.dtype)


def test_every_operator_is_called_from_script_as_from_python():
    x, positions = torch.randn(2, 3, 6), torch.tensor([4, 0, 9])
    scripted = torch.jit.script(call_operators)
    assert_same_bits(scripted(x.clone(), positions), call_operators(x.clone(), positions))


def test_a_scripted_model_is_saved_and_loaded(tmp_path):
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(100, 16)
            self.encoding = posenc.nn.PositionalEncoding(16, dropout=0.1, input_scale="sqrt")
            self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

        def forward(self, tokens: Tensor, offset: int = 0) -> Tensor:
            return self.layer(self.encoding(self.embedding(tokens), offset))

    model = Model().eval()
    path = tmp_path / "model.pt"
    torch.jit.script(model).save(str(path))
    loaded = torch.jit.load(str(path))
    tokens = torch.randint(100, (2, 30))
    with torch.no_grad():
        assert_same_bits(loaded(tokens, 5), model(tokens, 5))
