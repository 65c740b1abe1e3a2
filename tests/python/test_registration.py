"""What is registered with torch: schemas, tags, kernels, and torch's own check of every overload."""

from __future__ import annotations

import posenc
import pytest
import torch
from cases import DTYPES, LAYOUTS, OTHER_CONVENTION, ops
from torch.library import opcheck

CONVENTION = (
    'float base=10000.0, float freq_shift=0.0, float position_scale=1.0, str order="interleaved", str odd="sin"'
)
FACTORS = "float input_scale=1.0, float alpha=1.0"

#: The interface contract.
SCHEMAS = {
    "encode": f"(SymInt seq_len, SymInt d_model, SymInt offset=0, *, {CONVENTION}, ScalarType? dtype=None, "
    "Device? device=None) -> Tensor",
    "encode.positions": f"(Tensor positions, SymInt d_model, *, {CONVENTION}, ScalarType? dtype=None) -> Tensor",
    "encode.out": f"(SymInt seq_len, SymInt d_model, SymInt offset=0, *, {CONVENTION}, Tensor(a!) out) -> ()",
    "encode.positions_out": f"(Tensor positions, SymInt d_model, *, {CONVENTION}, Tensor(a!) out) -> ()",
    "add": f"(Tensor x, SymInt offset=0, *, int seq_dim=-2, {FACTORS}, {CONVENTION}) -> Tensor",
    "add.positions": f"(Tensor x, Tensor positions, *, {FACTORS}, {CONVENTION}) -> Tensor",
    "add_": f"(Tensor(a!) x, SymInt offset=0, *, int seq_dim=-2, {FACTORS}, {CONVENTION}) -> ()",
    "add_.positions": f"(Tensor(a!) x, Tensor positions, *, {FACTORS}, {CONVENTION}) -> ()",
    "add.out": f"(Tensor x, SymInt offset=0, *, int seq_dim=-2, {FACTORS}, {CONVENTION}, Tensor(a!) out) -> ()",
    "add.positions_out": f"(Tensor x, Tensor positions, *, {FACTORS}, {CONVENTION}, Tensor(a!) out) -> ()",
    "add_dropout": f"(Tensor x, float p, SymInt offset=0, *, int seq_dim=-2, {FACTORS}, {CONVENTION}, "
    "Generator? generator=None) -> (Tensor out, Tensor rng_state)",
    "add_dropout.positions": f"(Tensor x, float p, Tensor positions, *, {FACTORS}, {CONVENTION}, "
    "Generator? generator=None) -> (Tensor out, Tensor rng_state)",
    "_dropout_backward": "(Tensor grad, Tensor rng_state, float p, float input_scale) -> Tensor",
}
PACKETS = ("encode", "add", "add_", "add_dropout", "_dropout_backward")
NAMES = [name for packet in PACKETS for name in SCHEMAS if name.split(".")[0] == packet]


def overload(name: str) -> torch._ops.OpOverload:
    """The operator of a name such as "add.out"."""
    packet, _, suffix = name.partition(".")
    return getattr(getattr(ops, packet), suffix or "default")


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_is_that_of_the_contract(name):
    expected = torch._C.parse_schema(f"posenc::{name}{SCHEMAS[name]}")
    assert str(overload(name)._schema) == str(expected)


def test_there_are_no_other_overloads():
    for packet in PACKETS:
        registered = {f"{packet}.{o}".removesuffix(".default") for o in getattr(ops, packet).overloads()}
        assert registered == {name for name in NAMES if name.split(".")[0] == packet}


@pytest.mark.parametrize("name", NAMES)
def test_the_tags(name):
    random = {torch.Tag.nondeterministic_seeded} if name.startswith("add_dropout") else set()
    assert set(overload(name).tags) == {torch.Tag.pt2_compliant_tag} | random


@pytest.mark.parametrize("name", NAMES)
def test_every_operator_has_its_kernels(name):
    keys = ["CPU", "Meta"]
    if "Tensor " in SCHEMAS[name] or "Tensor(a!) x" in SCHEMAS[name] or "out" in SCHEMAS[name]:
        keys.append("Autograd")
    for key in keys:
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"posenc::{name}", key), key


def test_the_library_says_its_version():
    assert ops._version() == posenc.__version__


def samples(name: str, device: str) -> list[tuple[tuple, dict]]:
    """Arguments to check an operator with: dtypes, strides, conventions, gradients, empty tensors."""
    packet, _, suffix = name.partition(".")
    at_positions = "positions" in suffix
    positions = torch.tensor([4, 0, 9], device=device)
    factors = {"input_scale": 1.5, "alpha": 0.3}
    result = []
    if packet == "encode":
        starts = (
            [(positions, 6), (positions[:0], 5), (positions.to(torch.float32), 1)]
            if at_positions
            else [(3, 6, 2), (0, 5), (3, 1)]
        )
        for dtype, args, convention in zip(DTYPES, [*starts, starts[0]], [{}, OTHER_CONVENTION, {}, {}], strict=True):
            shape = (*(args[0].shape if at_positions else args[:1]), args[1])
            if suffix.endswith("out"):
                target = {"out": torch.empty(shape[::-1], dtype=dtype, device=device).movedim(0, -1)}
            else:
                target = {"dtype": dtype} if at_positions else {"dtype": dtype, "device": torch.device(device)}
            result.append((args, {**convention, **target}))
        if name == "encode.positions":
            result.append(((torch.randn(3, device=device, requires_grad=True), 6), {}))
        return result
    if packet == "_dropout_backward":
        state = torch.tensor([2**62 + 5, 8], device=device)
        for dtype, layout in zip(DTYPES, LAYOUTS.values(), strict=False):
            result.append(((layout(torch.randn(2, 3, 6, device=device).to(dtype)), state, 0.5, 1.5), {}))
        result.append(((torch.randn(2, 3, 6, device=device, requires_grad=True), state, 0.5, 1.5), {}))
        return [*result, ((torch.randn(2, 0, 6, device=device), state, 0.5, 1.0), {})]
    if packet == "add_dropout":
        as_add = samples(name.replace("add_dropout", "add"), device)
        return [((args[0], p, *args[1:]), kwargs) for args, kwargs in as_add for p in (0.5, 0.0)]
    for dtype, layout in zip(DTYPES, LAYOUTS.values(), strict=False):
        x = layout(torch.randn(2, 3, 6, device=device).to(dtype))
        result.append(((x, positions) if at_positions else (x, 5), factors))
    x = torch.randn(2, 0, 5, device=device)
    result.append(((x, positions[:0]) if at_positions else (x,), OTHER_CONVENTION))
    if suffix.endswith("out"):
        return [(args, {**kwargs, "out": torch.empty_like(args[0]).mT.clone().mT}) for args, kwargs in result]
    if packet == "add":
        x = torch.randn(2, 3, 6, device=device, requires_grad=True)
        result.append(((x, positions) if at_positions else (x, 5), factors))
    if name == "add.positions":
        p = torch.randn(3, device=device, requires_grad=True)
        result.append(((torch.randn(2, 3, 6, device=device, requires_grad=True), p), factors))
    return result


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(device, name):
    for args, kwargs in samples(name, device):
        results = opcheck(overload(name), args, kwargs)
        assert set(results.values()) == {"SUCCESS"}, (args, kwargs, results)
