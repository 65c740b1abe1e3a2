#!/usr/bin/env python3
"""Generates tests/golden/math_*.csv: reference values for the tests of csrc/posenc/math. Needs mpmath.

    python tools/generate_golden_math.py            # replaces the files
    python tools/generate_golden_math.py --check    # fails if a file differs from what would be generated

Nothing here shares a formula with the C++ code: frequencies are base**(-2k / (w - 2s)) at 1,500 bits, phases are
exact rational arithmetic, sines are mpmath's. A real number is stored as two doubles, the nearest one and the one
nearest to the remainder, in hexadecimal: about 106 bits, so that bounds below one ulp can be checked.
"""

import argparse
import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

from mpmath import mp, mpf

mp.prec = 1500

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests" / "golden"
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_ANGLE = mpf(2) ** 64  # the bounds hold up to here
SUBNORMAL = 5e-324
DBL_MAX = sys.float_info.max

# base, width, freq_shift, position_scale, num_freqs
CONVENTIONS = [
    # ordinary ones: the paper, tensor2tensor, odd widths, diffusion scales
    (10000.0, 512, 0.0, 1.0, 256),
    (10000.0, 512, 1.0, 1.0, 256),
    (10000.0, 4096, 0.0, 1.0, 2048),
    (10000.0, 4, 0.0, 1.0, 2),
    (10000.0, 5, 0.0, 1.0, 3),
    (10000.0, 7, 1.0, -1.0, 4),
    (10000.0, 320, 0.0, 1000.0, 160),
    (10000.0, 768, 0.5, 0.25, 384),
    (500000.0, 128, 0.0, 1.0, 64),
    # bases: below, at and near 1, powers of two, extremes
    (1e-12, 64, 0.0, 1.0, 32),
    (0.5, 10, 0.0, 1.0, 5),
    (1.0, 64, 0.0, 1.0, 32),
    (math.nextafter(1.0, 2.0), 64, 0.0, 1.0, 32),
    (math.nextafter(1.0, 0.0), 64, 0.0, 1.0, 32),
    (2.0, 20, 0.0, math.pi, 10),
    (4.0, 4, 0.0, 2.0, 2),
    (math.sqrt(2.0), 128, 0.0, 1.0, 64),
    (math.nextafter(math.sqrt(2.0), 0.0), 128, 0.0, 1.0, 64),
    (math.sqrt(0.5), 66, 0.0, 1.0, 33),
    (1e300, 1024, 0.0, 1.0, 512),
    (DBL_MAX, 256, 0.0, 1.0, 128),
    (SUBNORMAL, 256, 0.0, 1.0, 128),
    (3e-310, 96, 0.0, 1e-30, 48),
    (2.2250738585072014e-308, 96, 0.0, 1e-30, 48),
    # denominators: not an integer, negative, tiny, huge
    (10000.0, 64, 1e-20, 1.0, 32),
    (10000.0, 4, 1.9999999, 1e30, 2),
    (10000.0, 6, 1.9999999, 1.0, 3),
    (1.0001, 4, 1.9999999, 1.0, 2),
    (10000.0, 64, -0.1, 1.0, 32),
    (10000.0, 5, -2.5, 1.0, 3),
    (10000.0, 2**60 - 1, -0.75, 1.0, 2**34),
    (10000.0, 64, 33.5, 1e-5, 32),
    (10000.0, 64, 100.25, 1.0, 32),
    (3.0, 8, -1e6, 1.0, 4),
    (3.0, 8, 1e300, 1.0, 4),
    (3.0, 8, SUBNORMAL, 1.0, 4),
    (1e-3, 3, 1.4999999999999998, 1e-200, 2),
    (10.0, 2**62 + 2, 1.0, 1.0, 2**35),
    # scales
    (10000.0, 512, 0.0, 1e-200, 256),
    (10000.0, 512, 0.0, 1e150, 256),
    (10000.0, 512, 0.0, -1e-3, 256),
    (10000.0, 512, 0.0, SUBNORMAL, 256),
    (10000.0, 512, 0.0, 1e308, 256),
    (1e12, 512, 0.0, 2 * math.pi, 256),
    # widths on both sides of a digit of k
    (10000.0, 64, 0.0, 1.0, 33),
    (10000.0, 2048, 0.0, 1.0, 1025),
    (10000.0, 65536, 0.0, 1.0, 32768),
    (10000.0, 65538, 1.0, 1.0, 32769),
    (10000.0, 2**21, 0.0, 1.0, 2**20),
    (1e6, 2**36, 0.0, 1.0, 2**35),
]

# What phases are computed from: |p| and the exponent of the frequency. Both sides of every shift by whole words.
PHASE_INTEGERS = [0, 1, 2, 16, 31, 32, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63]
PHASE_REALS = [SUBNORMAL, 1e-310, 1e-17, 0.1, 0.5, 1.5, 1e15 + 0.5, 2.0**63, 2.0**64, 1e30, 1e300, DBL_MAX]
PHASE_EXPONENTS = [
    *(-1200, -193, -192, -191, -129, -128, -127, -65, -64, -63, -33, -20, -3, -2, -1, 0),
    *(1, 2, 31, 63, 64, 65, 100, 127, 128, 129, 1100, 2**24, -(2**24), 7 * 2**24, -7 * 2**24),
]

# Positions of elements, beside random ones.
POSITIONS = [
    *(0, 1, 15, 16, 17, 31, 32, 33, -1, -16, -17, -48, 2**31, 2**32 + 5, 2**53, 2**53 + 1, -(2**53) - 1),
    *(2**62, 2**62 + 17, INT64_MAX, INT64_MIN, INT64_MIN + 1, -0.0, 0.5, -0.5, 1.0, 0.1, 1e-5, SUBNORMAL, -1e-300),
    *(2.0**63, -(2.0**63), 1e18, 4503599627370495.5, 1.2345e19, -9.9e29, 1e300, -DBL_MAX),
]


def turns_per_position(base, width, freq_shift, position_scale, k):
    """|scale| / (2 pi) * base^(-2k / (w - 2s)) at 1,500 bits."""
    if k == 0:
        return abs(mpf(position_scale)) / (2 * mp.pi)
    exponent = -2 * mpf(k) / (mpf(width) - 2 * mpf(freq_shift))
    return abs(mpf(position_scale)) / (2 * mp.pi) * mp.power(mpf(base), exponent)


def to_float128(value):
    """(hi, lo, exponent) of the nearest 128-bit number."""
    if value == 0:
        return 0, 0, 0
    mantissa, exponent = mp.frexp(value)
    integer = int(mp.nint(mp.ldexp(mantissa, 128)))
    if integer == 2**128:
        integer, exponent = 2**127, exponent + 1
    return integer >> 64, integer & (2**64 - 1), int(exponent)


def nearest_double(value):
    """Correctly rounded, subnormals and overflow included: a quotient of Python integers is."""
    exponent = mp.frexp(value)[1]
    if exponent < -1100 or value == 0:
        return 0.0
    if exponent > 1024:
        return math.copysign(math.inf, value)
    scaled = int(mp.ldexp(value, mp.prec + 1100))  # exact: no bit of value lies below 2^-(prec + 1100)
    try:
        return scaled / (1 << (mp.prec + 1100))
    except OverflowError:
        return math.copysign(math.inf, value)


def two_doubles(value):
    high = nearest_double(value)
    low = nearest_double(value - mpf(high))
    return high.hex(), low.hex()


def sine_and_cosine(turns):
    """Four fields from an exact or 1,500-bit number of turns."""
    angle = 2 * mp.pi * (turns - mp.floor(turns))
    return [*two_doubles(mp.sin(angle)), *two_doubles(mp.cos(angle))]


def pairs_of(num_freqs, rng):
    """The pairs worth testing: ends, digit boundaries, a few at random."""
    wanted = {0, 1, 31, 32, 33, 1023, 1024, 1025, 32767, 32768, 32769, num_freqs - 2, num_freqs - 1}
    wanted |= {rng.randrange(num_freqs) for _ in range(3)}
    return sorted(k for k in wanted if 0 <= k < num_freqs)


def convention_fields(convention):
    base, width, freq_shift, position_scale, num_freqs = convention
    return [repr(base), width, repr(freq_shift), repr(position_scale), num_freqs]


def frequency_rows():
    rng = random.Random(1)
    for convention in CONVENTIONS:
        base, width, freq_shift, position_scale, num_freqs = convention
        for k in pairs_of(num_freqs, rng):
            g = turns_per_position(base, width, freq_shift, position_scale, k)
            hi, lo, exponent = to_float128(g)
            if abs(exponent) > 2**20:
                continue
            radians = nearest_double(g * 2 * mp.pi)
            yield [*convention_fields(convention), k, f"{hi:016x}", f"{lo:016x}", exponent, radians.hex()]


def phase_rows():
    rng = random.Random(2)
    for exponent in PHASE_EXPONENTS:
        mantissas = [2**127, 2**128 - 1, rng.getrandbits(127) | 2**127, rng.getrandbits(127) | 2**127]
        for mantissa in mantissas:
            for kind, magnitude in (
                ("integer", rng.choice(PHASE_INTEGERS)),
                ("integer", rng.getrandbits(rng.randrange(1, 64))),
                ("real", rng.choice(PHASE_REALS)),
                ("real", math.ldexp(rng.random() + 0.5, rng.randrange(-40, 70) - max(-900, min(900, exponent)))),
            ):
                yield phase_row(kind, magnitude, mantissa, exponent)
    for shift in (-193, -192, -191, -129, -128, -127, -65, -64, -63, -1, 0, 1, 62, 63, 64):
        # A product of exactly `shift` in units of phase_of_real: 2^-64 turns times the 53-bit integer of the position.
        mantissa = rng.getrandbits(127) | 2**127
        magnitude = math.ldexp(float(rng.getrandbits(52) | 2**52), -10)
        yield phase_row("real", magnitude, mantissa, shift + 64 + 10)


def phase_row(kind, magnitude, mantissa, exponent):
    def floor_scaled(power, factor):
        """floor(factor * g * 2^power) modulo 2^power, exactly."""
        shift = exponent - 128 + power
        numerator, denominator = factor.numerator * mantissa, factor.denominator
        if abs(shift) > 20000:  # a multiple of 2^power, because the denominator is at most 2^1074; or less than 1
            return 0
        if shift >= 0:
            return (numerator << shift) // denominator % 2**power
        return numerator // (denominator << -shift) % 2**power

    fraction = floor_scaled(128, Fraction(1))
    if kind == "integer":
        phase = (magnitude * fraction >> 64) % 2**64
        text = str(magnitude)
    else:
        phase = floor_scaled(64, Fraction(magnitude))
        text = magnitude.hex()
    words = (mantissa >> 64, mantissa & (2**64 - 1), fraction >> 64, fraction & (2**64 - 1))
    hi, lo, f_hi, f_lo = (f"{w:016x}" for w in words)
    return [kind, text, hi, lo, exponent, f_hi, f_lo, f"{phase:016x}"]


def sincos_rows():
    rng = random.Random(3)
    phases = []
    for row in range(64):
        center, boundary = row << 58, (row << 58) + (1 << 57)  # a table angle; the end of its reach
        phases += [center - 1, center, center + 1, boundary - 1, boundary, boundary + 1]
    phases += [1 << n for n in range(64)]
    phases += [rng.getrandbits(64) for _ in range(400)]
    for phase in phases:
        phase %= 2**64
        yield [f"{phase:016x}", *sine_and_cosine(mpf(phase) / 2**64)]


def element_rows():
    rng = random.Random(4)
    for convention in CONVENTIONS:
        base, width, freq_shift, position_scale, num_freqs = convention
        positions = rng.sample(POSITIONS, 14)
        positions += [rng.choice((-1, 1)) * rng.getrandbits(rng.randrange(1, 64)) for _ in range(12)]
        positions += [rng.choice((-1, 1)) * math.ldexp(rng.random(), rng.randrange(-30, 60)) for _ in range(8)]
        for p in positions:
            yield from element_row(convention, rng.randrange(num_freqs), p)
    yield from near_tie_rows(rng)


def element_row(convention, k, p):
    base, width, freq_shift, position_scale, num_freqs = convention
    turns = turns_per_position(base, width, freq_shift, position_scale, k) * mpf(p)
    if position_scale < 0:
        turns = -turns
    if abs(turns) * 2 * mp.pi > MAX_ANGLE:
        return
    text = str(p) if isinstance(p, int) else p.hex()
    yield [*convention_fields(convention), k, text, *sine_and_cosine(turns)]


def near_tie_rows(rng):
    """Elements whose 16-bit rounding by way of the nearest float would be wrong, and those within 1e-9 of a tie."""
    convention = CONVENTIONS[0]
    base, width = convention[0], convention[1]
    found = {"bfloat16": 0, "float16 double": 0, "float16 near": 0}
    while found["bfloat16"] < 12:
        k, p = rng.randrange(256), rng.randrange(100000)
        value = math.sin(p * base ** (-2 * k / width))
        if abs(value) < 0.01:
            continue
        kind = near_tie(value)
        if kind and found[kind] < 25:
            found[kind] += 1
            yield from element_row(convention, k, p)


def near_tie(value):
    mantissa, exponent = math.frexp(abs(value))
    single = struct.unpack("f", struct.pack("f", abs(value)))[0]
    for name, bits in (("bfloat16", 8), ("float16", 11)):
        tie = math.ldexp(math.floor(math.ldexp(mantissa, bits)) + 0.5, exponent - bits)
        if single == tie and abs(value) != tie:
            return name if name == "bfloat16" else "float16 double"
        if name == "float16" and abs(abs(value) - tie) < 1e-9:
            return "float16 near"
    return None


CONVENTION_COLUMNS = "base,width,freq_shift,position_scale,num_freqs"
FILES = {
    "math_frequency.csv": (f"{CONVENTION_COLUMNS},k,hi,lo,exponent,radians", frequency_rows),
    "math_phase.csv": ("kind,magnitude,g_hi,g_lo,g_exponent,f_hi,f_lo,phase", phase_rows),
    "math_sincos.csv": ("phase,sin_hi,sin_lo,cos_hi,cos_lo", sincos_rows),
    "math_element.csv": (f"{CONVENTION_COLUMNS},k,position,sin_hi,sin_lo,cos_hi,cos_lo", element_rows),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail if a file differs")
    check = parser.parse_args().check

    for name, (columns, rows) in FILES.items():
        lines = ["# Generated by tools/generate_golden_math.py (mpmath, 1500 bits); do not edit.", columns]
        lines += [",".join(str(field) for field in row) for row in rows()]
        text = "\n".join(lines) + "\n"
        if not check:
            (FOLDER / name).write_text(text)
        elif (FOLDER / name).read_text() != text:
            sys.exit(f"{name} differs from what {pathlib.Path(__file__).name} generates")
        print(f"{name}: {len(lines) - 2} rows, {len(text)} bytes")


if __name__ == "__main__":
    main()
