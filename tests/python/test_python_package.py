"""The Python package: its names, its documentation, its import, its typing marker, the readable reference."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import exact
import posenc
import posenc.functional
import posenc.nn
import posenc.reference
import pytest
import torch
from cases import ODDS, ORDERS, assert_same_bits
from exact import Convention

PUBLIC_NAMES = {
    *("add", "add_", "add_dropout", "encode", "nn", "positional_encoding", "reference"),
    *("__version__", "cmake_prefix_path", "include_path", "library_path"),
}


def in_a_new_process(code: str) -> str:
    """What Python prints for ``code`` without anything imported before."""
    process = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_the_public_names():
    assert set(posenc.__all__) == PUBLIC_NAMES
    assert all(hasattr(posenc, name) for name in PUBLIC_NAMES)
    assert posenc.nn.__all__ == ["PositionalEncoding"]
    for name in ("add", "add_", "add_dropout", "encode", "positional_encoding"):
        assert getattr(posenc, name) is getattr(posenc.functional, name)
        assert name in posenc.functional.__all__


@pytest.mark.parametrize(
    "function",
    [
        posenc.encode,
        posenc.add,
        posenc.add_,
        posenc.add_dropout,
        posenc.positional_encoding,
        posenc.nn.PositionalEncoding.forward,
    ],
)
def test_every_function_is_documented_and_typed(function):
    assert inspect.getdoc(function)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name != "self":
            assert parameter.annotation is not inspect.Parameter.empty, parameter
            assert parameter.name in inspect.getdoc(function) or function is not posenc.encode, parameter
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty


CONVENTION_DEFAULTS = {
    "base": 10000.0,
    "freq_shift": 0.0,
    "position_scale": 1.0,
    "order": "interleaved",
    "odd": "sin",
}


@pytest.mark.parametrize("function", [posenc.encode, posenc.add, posenc.add_, posenc.nn.PositionalEncoding])
def test_the_convention_has_one_spelling_and_is_keyword_only(function):
    parameters = inspect.signature(function).parameters
    names = [name for name in parameters if name in CONVENTION_DEFAULTS]
    assert names == list(CONVENTION_DEFAULTS)
    for name, default in CONVENTION_DEFAULTS.items():
        assert parameters[name].default == default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("module", [posenc, posenc.functional, posenc.nn, posenc.reference], ids=lambda m: m.__name__)
def test_the_examples_in_the_documentation_run(module):
    result = doctest.testmod(module, extraglobs={"posenc": posenc, "torch": torch})
    assert result.failed == 0
    if module is not posenc.reference:
        assert result.attempted > 0


def test_the_package_is_typed():
    assert (Path(posenc.__file__).parent / "py.typed").is_file()


def test_the_folders_for_cpp_builds_exist():
    assert Path(posenc.library_path()).is_file()
    assert (Path(posenc.include_path()) / "posenc" / "posenc.h").is_file()
    assert list(Path(posenc.cmake_prefix_path).rglob("posencConfig.cmake"))


def test_the_version_is_that_of_the_library():
    assert posenc.__version__ == torch.ops.posenc._version()


def test_posenc_may_be_the_first_import_and_its_library_be_loaded_again():
    code = """
import posenc
print(posenc.encode(3, 4).shape)
import torch
torch.ops.load_library(posenc.library_path())
print(torch.equal(posenc.encode(3, 4), torch.ops.posenc.encode(3, 4)))
"""
    assert in_a_new_process(code) == "torch.Size([3, 4])\nTrue\n"


def test_import_is_light_and_changes_nothing_of_torch():
    code = """
import sys, torch
def state():
    return (torch.get_default_dtype(), torch.get_default_device(), torch.get_num_threads(), torch.initial_seed(),
            torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled(), torch.get_rng_state().tolist())
torch.manual_seed(5)
before, modules = state(), set(sys.modules)
import posenc
new = set(sys.modules) - modules
print(sorted({name.split(".")[0] for name in new} & {"numpy", "matplotlib", "scipy", "mpmath"}))
print(any(name.startswith("torch._inductor") for name in new))
posenc.add(torch.zeros(2, 3, 4))
posenc.nn.PositionalEncoding(4)
print(state() == before)
"""
    assert in_a_new_process(code) == "[]\nFalse\nTrue\n"


def test_results_are_deterministic(device):
    x = torch.randn(4, 200, 65, device=device)
    torch.use_deterministic_algorithms(True)
    try:
        first = [posenc.encode(200, 65, device=device), posenc.add(x, 3), posenc.nn.PositionalEncoding(65)(x)]
        for _ in range(3):
            again = [posenc.encode(200, 65, device=device), posenc.add(x, 3), posenc.nn.PositionalEncoding(65)(x)]
            for actual, expected in zip(again, first, strict=True):
                assert_same_bits(actual, expected)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("odd", ODDS)
@pytest.mark.parametrize("order", ORDERS)
def test_the_reference_follows_the_formula(order, odd):
    for d_model in (1, 2, 3, 7, 8):
        for shift in (0.0, 1.0) if d_model > 3 else (0.0,):
            convention = Convention(base=100.0, freq_shift=shift, position_scale=0.5, order=order, odd=odd)
            result = posenc.reference.encode(torch.arange(-10, 40), d_model, **vars(convention))
            assert (result.dtype, result.shape) == (torch.float64, (50, d_model))
            # It forms angles of at most 20 rad in float64: a frequency within 2 ulp, a product, sine and cosine.
            error = exact.encoding(range(-10, 40), d_model, convention).error(result)
            assert float(error.max()) <= 20 * 4 * 2.0**-53 + 2.0**-52, (convention, d_model)
