"""torch.compile and torch.export: one graph, the bits of eager code, no needless recompilation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import posenc
import pytest
import torch
from cases import OTHER_CONVENTION, assert_same_bits, name_of, ops
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend


@pytest.fixture(autouse=True)
def fresh_compilations() -> Iterator[None]:
    """No compilation of another test is met, nor one on disk that was made with another state of the library."""
    torch._dynamo.reset()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield
    torch._dynamo.reset()


class Model(torch.nn.Module):
    """Work of others before and after the encoding."""

    def __init__(self, **kwargs) -> None:
        super().__init__()
        self.encoding = posenc.nn.PositionalEncoding(8, **kwargs)

    def forward(self, x: Tensor, offset: int = 0, positions: Tensor | None = None) -> Tensor:
        return self.encoding(x.abs(), offset, positions).neg()


# ---- With Inductor: the code that users run. ----


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=name_of)
def test_a_compiled_module_equals_eager(device, dtype):
    encoding = posenc.nn.PositionalEncoding(8, input_scale="sqrt", alpha=0.3).to(device)
    compiled = torch.compile(encoding, fullgraph=True)
    x = torch.randn(2, 5, 8, device=device).to(dtype)
    assert_same_bits(compiled(x), encoding(x))
    assert_same_bits(compiled(x, 7), encoding(x, 7))


def test_a_compiled_model_equals_eager_at_any_length_and_offset(device):
    model = Model(**OTHER_CONVENTION).to(device)
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for batch, seq_len, offset in ((2, 5, 3), (3, 9, 0), (2, 100, 10**6), (4, 2, -50)):
        x = torch.randn(batch, seq_len, 8, device=device)
        assert_same_bits(compiled(x, offset), model(x, offset), (batch, seq_len, offset))


def test_gradients_of_a_compiled_model_equal_eager(device):
    torch.manual_seed(0)
    model = Model(input_scale=2.0, learnable_alpha=True).to(device)
    compiled = torch.compile(model, fullgraph=True)
    results = []
    for call in (model, compiled):
        x = torch.linspace(-2, 2, 80, device=device).view(2, 5, 8).requires_grad_()
        model.zero_grad()
        call(x).square().sum().backward()
        results.append((x.grad, model.encoding.alpha.grad.clone()))
    assert_same_bits(results[1][0], results[0][0])
    # Inductor sums 80 products of float32 in another sequence.
    scale = float(results[0][1].abs())
    assert abs(float(results[1][1]) - float(results[0][1])) <= 80 * 2.0**-23 * max(scale, 80.0)


def test_compiled_code_that_writes_equals_eager(device):
    def write(x: Tensor, out: Tensor, table: Tensor) -> Tensor:
        posenc.add_(x, 3, input_scale=1.5)
        posenc.add(x, positions=torch.arange(5, device=x.device), out=out)
        posenc.encode(5, 8, 2, out=table)
        ops.add_.positions(table, torch.arange(5, device=x.device))
        return x + out + table

    compiled = torch.compile(write, fullgraph=True)
    results = []
    for call in (write, compiled):
        x = torch.linspace(-2, 2, 80, device=device).view(2, 5, 8)
        out, table = torch.zeros(8, 5, 2, device=device).permute(2, 1, 0), torch.zeros(5, 8, device=device)
        results.append((call(x, out, table), x, out, table))
    for actual, expected in zip(results[1], results[0], strict=True):
        assert_same_bits(actual, expected)


# ---- With the graph alone: what Dynamo and AOTAutograd make of the calls. ----


def graph(function: Callable, **kwargs) -> Callable:
    """``function`` compiled without a code generator."""
    return torch.compile(function, fullgraph=True, backend="aot_eager", **kwargs)


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_every_function_is_one_graph(device, dynamic):
    positions = torch.tensor([3.0, 0.5, -2.0], device=device)
    x = torch.randn(2, 3, 6, device=device)
    calls: dict[str, Callable[[Tensor], Tensor]] = {
        "encode": lambda x: posenc.encode(x.shape[1], 6, 4, dtype=torch.float64, device=x.device),
        "encode of positions": lambda x: posenc.encode(positions, 6, order="split"),
        "encode out": lambda x: posenc.encode(3, 6, out=torch.empty(6, 3, device=x.device).t()),
        "encode of positions out": lambda x: posenc.encode(positions, 6, out=torch.empty(3, 6, device=x.device)),
        "add": lambda x: posenc.add(x, 4, base=100.0),
        "add at positions": lambda x: posenc.add(x, positions=positions),
        "add_": lambda x: posenc.add_(x.clone(), seq_dim=0),
        "add_ at positions": lambda x: posenc.add_(x.clone(), positions=positions),
        "add out": lambda x: posenc.add(x, 2, out=torch.empty_like(x)),
        "add at positions out": lambda x: posenc.add(x, positions=positions, out=torch.empty_like(x)),
        "raw packets": lambda x: ops.add(x, 3) + ops.add(x, positions) + ops.encode(3, 6, device=x.device),
    }
    for name, call in calls.items():
        torch._dynamo.reset()
        assert_same_bits(graph(call, dynamic=dynamic)(x), call(x), name)


@pytest.mark.parametrize("strided", ["x", "out"])
def test_strided_arguments_are_written_in_a_graph(device, strided):
    def fill(out: Tensor) -> None:
        posenc.encode(3, 6, 2, out=out)

    def increase(x: Tensor) -> None:
        posenc.add_(x, 2)

    call = fill if strided == "out" else increase
    eager, compiled = torch.ones(6, 3, device=device).t(), torch.ones(6, 3, device=device).t()
    call(eager)
    graph(call)(compiled)
    assert_same_bits(compiled, eager)


def test_defaults_of_torch_are_those_at_the_call():
    call = graph(lambda: posenc.encode(3, 4))
    assert_same_bits(call(), posenc.encode(3, 4))
    torch.set_default_dtype(torch.float64)
    assert_same_bits(call(), posenc.encode(3, 4))
    torch.set_default_device("meta")
    assert call().device.type == "meta"


def compilations(function: Callable, calls: list[tuple], **kwargs) -> int:
    """How many graphs Dynamo made of ``function`` for these calls; every result equals eager."""
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(function, fullgraph=True, backend=counter, **kwargs)
    for args in calls:
        assert_same_bits(compiled(*args), function(*args), args[1:])
    return counter.frame_count


def test_decoding_steps_compile_twice_at_most(device):
    encoding = posenc.nn.PositionalEncoding(8)
    x = torch.randn(2, 1, 8, device=device)
    steps = [(x, offset) for offset in range(20)]
    assert compilations(encoding, steps) <= 2  # torch specialises 0
    torch._dynamo.reset()
    assert compilations(encoding, steps, dynamic=True) == 1


def test_lengths_and_offsets_compile_once_when_dynamic(device):
    calls = [(torch.randn(2, n, 8, device=device), o) for n, o in ((5, 3), (7, 4), (100, 0), (33, -9), (2, 2**40))]
    for kwargs in ({}, {"max_len": 2**41}):
        torch._dynamo.reset()
        encoding = posenc.nn.PositionalEncoding(8, **kwargs)
        within = [c for c in calls if not kwargs or c[1] >= 0]
        assert compilations(encoding, within, dynamic=True) == 1


def test_prefill_and_decoding_compile_twice(device):
    encoding = posenc.nn.PositionalEncoding(8, max_len=4096)
    calls = [(torch.randn(2, 20, 8, device=device), 0)] + [
        (torch.randn(2, 1, 8, device=device), 20 + i) for i in range(15)
    ]
    assert compilations(encoding, calls, dynamic=True) <= 2


def test_positions_and_tensor_offsets_compile_once(device):
    encoding = posenc.nn.PositionalEncoding(8)
    x = torch.randn(3, 4, 8, device=device)
    steps = [(x, 0, torch.arange(4, device=device) + i) for i in range(10)]
    assert compilations(encoding, steps) == 1
    torch._dynamo.reset()
    steps = [(x, torch.tensor([i, 2 * i, 7], device=device)) for i in range(10)]
    assert compilations(encoding, steps) == 1


def test_errors_keep_their_text():
    with pytest.raises(Exception, match="add: x must have at least 2 dimensions"):
        graph(posenc.add)(torch.zeros(3))


# ---- Export. ----


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_module_equals_eager_at_other_lengths(strict):
    model = Model(order="split", input_scale=1.5)
    dynamic = torch.export.Dim.DYNAMIC
    x = torch.randn(2, 5, 8)
    exported = torch.export.export(model, (x, 3), dynamic_shapes=({0: dynamic, 1: dynamic}, dynamic), strict=strict)
    assert any(node.target is ops.add.default for node in exported.graph.nodes)
    for batch, seq_len, offset in ((2, 5, 3), (4, 9, 1000), (3, 2, 10**6)):
        x = torch.randn(batch, seq_len, 8)
        assert_same_bits(exported.module()(x, offset), model(x, offset), (batch, seq_len, offset))
    lowered = exported.run_decompositions()
    assert_same_bits(lowered.module()(x, 7), model(x, 7))


def test_an_exported_program_is_saved_and_loaded(tmp_path):
    model = Model()
    x = torch.randn(2, 5, 8)
    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(model, (x,)), path)
    assert_same_bits(torch.export.load(path).module()(x), model(x))


CMP_01 = """
import posenc, torch
assert posenc.add(torch.zeros(2, 3, 4).to("meta")).shape == (2, 3, 4)
assert torch.ops.posenc.encode(torch.arange(3, device="meta"), 4).device.type == "meta"

class Model(torch.nn.Module):
    def forward(self, x):
        return posenc.add(x, 3) + posenc.encode(3, 4)

x = torch.randn(2, 3, 4)
assert torch.equal(torch.export.export(Model(), (x,)).module()(x), Model()(x))
assert torch.equal(torch.compile(Model(), fullgraph=True)(x), Model()(x))
print("done")
"""


def test_meta_export_and_compile_work_right_after_import():
    """Report CMP-01: no fake kernel."""
    environment = {**os.environ, "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    command = [sys.executable, "-c", CMP_01]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "done\n"
