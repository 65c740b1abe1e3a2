"""Exact values of the encoding: mpmath, straight from the angle formula, sharing nothing with the product.

A value is kept as two doubles, the nearest one and the rest, so that errors far below an ulp of float64 show.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import mpmath
import numpy
import torch
from torch import Tensor

#: Decimal digits: an angle of 2^64 takes 20, the value keeps 70.
DIGITS = 90

#: The bound of the numerical contract on the value before its one rounding, and the angle up to which it holds.
ERROR_BOUND = 4e-16
LARGEST_ANGLE = 2.0**64

#: For each result dtype: bits of the significand, and the exponent of its smallest positive value.
_FORMATS = {torch.float32: (24, -149), torch.bfloat16: (8, -133), torch.float16: (11, -24)}


@dataclass(frozen=True)
class Convention:
    """The five arguments that say which encoding is meant, with their defaults."""

    base: float = 10000.0
    freq_shift: float = 0.0
    position_scale: float = 1.0
    order: str = "interleaved"
    odd: str = "sin"


def columns(d_model: int, order: str, odd: str) -> list[tuple[str, int]]:
    """What each column holds: ("sin", k), ("cos", k) or ("zero", 0)."""
    if d_model % 2 and odd == "zero":
        return [*columns(d_model - 1, order, "sin"), ("zero", 0)]
    if d_model % 2 and odd == "cut":
        return columns(d_model + 1, order, "sin")[:-1]
    first, second = ("cos", "sin") if order.endswith("cos_first") else ("sin", "cos")
    if order.startswith("interleaved"):
        return [(first, i // 2) if i % 2 == 0 else (second, i // 2) for i in range(d_model)]
    return [(first, k) for k in range((d_model + 1) // 2)] + [(second, k) for k in range(d_model // 2)]


def effective_width(d_model: int, odd: str) -> int:
    """The w of the angle formula."""
    return d_model + {"sin": 0, "zero": -1, "cut": 1}[odd] if d_model % 2 else d_model


@functools.cache
def frequency(k: int, width: int, base: float, freq_shift: float) -> mpmath.mpf:
    """The frequency of pair k in rad per position: base^(-2k / (w - 2 * freq_shift))."""
    with mpmath.workdps(DIGITS):
        if k == 0:
            return mpmath.mpf(1)
        return mpmath.mpf(base) ** (-2 * k / (width - 2 * mpmath.mpf(freq_shift)))


@functools.cache
def _sine_and_cosine(position: Fraction, k: int, width: int, base: float, freq_shift: float, scale: float) -> dict:
    """The exact sine and cosine of one pair, and its angle."""
    with mpmath.workdps(DIGITS):
        p = mpmath.mpf(position.numerator) / position.denominator
        angle = p * mpmath.mpf(scale) * frequency(k, width, base, freq_shift)
        if abs(angle) > LARGEST_ANGLE:  # nothing is promised, and reducing it could take a million digits
            return {"sin": mpmath.mpf(0), "cos": mpmath.mpf(0), "zero": mpmath.mpf(0), "angle": math.inf}
        cosine, sine = mpmath.cos_sin(angle)
        return {"sin": sine, "cos": cosine, "zero": mpmath.mpf(0), "angle": abs(float(angle))}


def _position(position: float | Fraction) -> Fraction:
    return position if isinstance(position, Fraction) else Fraction(position)


@dataclass(frozen=True)
class Exact:
    """Exact values ``high + low`` of shape (positions, d_model), and the angle of each, in float64."""

    high: Tensor
    low: Tensor
    angle: Tensor

    def error(self, result: Tensor) -> Tensor:
        """|result - exact|, to about 1e-32 where the result is close."""
        return (result.detach().cpu().double() - self.high - self.low).abs()


def encoding(positions: Iterable[float | Fraction], d_model: int, convention: Convention | None = None) -> Exact:
    """The exact encoding of ``positions``: ints of any size, floats (their exact value) or fractions."""
    c = convention or Convention()
    width = effective_width(d_model, c.odd)
    high, low, angle = [], [], []
    with mpmath.workdps(DIGITS):
        for position in positions:
            for kind, k in columns(d_model, c.order, c.odd):
                pair = _sine_and_cosine(_position(position), k, width, c.base, c.freq_shift, c.position_scale)
                nearest = float(pair[kind])
                high.append(nearest)
                low.append(float(pair[kind] - nearest))
                angle.append(pair["angle"])
    return Exact(*(torch.tensor(values, dtype=torch.float64).reshape(-1, d_model) for values in (high, low, angle)))


def half_ulp(result: Tensor) -> Tensor:
    """Half the distance between neighbours of each value in its dtype, as float64; 0 for float64 (no rounding)."""
    value = result.detach().cpu().double().numpy()
    if result.dtype == torch.float64:
        return torch.zeros(result.shape, dtype=torch.float64)
    digits, smallest = _FORMATS[result.dtype]
    exponent = numpy.where(value == 0.0, smallest, numpy.maximum(numpy.frexp(value)[1] - digits, smallest))
    return torch.from_numpy(numpy.asarray(numpy.ldexp(1.0, exponent - 1)))


def bound(result: Tensor) -> Tensor:
    """The error that the numerical contract allows for each value of ``result``."""
    return half_ulp(result) + ERROR_BOUND


def assert_accurate(result: Tensor, exact: Exact, case: object = "") -> None:
    """Asserts the numerical contract for ``result`` of shape (.., d_model); prints the worst element otherwise."""
    flat = result.detach().cpu().reshape(exact.high.shape)
    assert bool(flat.isfinite().all()), f"{case}: a value is not finite"
    largest = float(flat.double().abs().max()) if flat.numel() else 0.0
    assert largest <= 1.0, f"{case}: a value of {largest!r} is beyond 1"
    promised = exact.angle <= LARGEST_ANGLE
    excess = torch.where(promised, exact.error(flat) - bound(flat), torch.full_like(exact.high, -1.0))
    if flat.numel() == 0 or float(excess.max()) <= 0.0:
        return
    row, column = divmod(int(excess.argmax()), flat.shape[-1])
    raise AssertionError(
        f"{case}: row {row}, column {column}: result {float(flat[row, column])!r}, exact "
        f"{float(exact.high[row, column])!r}, error {float(exact.error(flat)[row, column]):.3e}, "
        f"bound {float(bound(flat)[row, column]):.3e}"
    )
