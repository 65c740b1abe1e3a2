#!/usr/bin/env python3
"""Generates csrc/posenc/math/sincos_table.h: the constants behind sincos_of_phase. Needs mpmath.

    python tools/generate_sincos_table.py            # prints the header
    python tools/generate_sincos_table.py --write    # replaces the file
    python tools/generate_sincos_table.py --check    # fails if the file differs from what would be generated

The constants decide bits, so the file is frozen: a change here is a change of results and needs a changelog entry.
"""

import argparse
import pathlib
import sys

from mpmath import mp, mpf

mp.prec = 300

HEADER = pathlib.Path(__file__).resolve().parent.parent / "csrc" / "posenc" / "math" / "sincos_table.h"
NUM_ROWS = 64
PHASE_BITS = 64  # a phase counts 2^-64 turns
MAX_TURNS = mpf(1) / (2 * NUM_ROWS)  # reach of the polynomials: half the distance of two rows
NUM_COEFFICIENTS = 4
NUM_NODES = 64


def sine(u):
    return mp.sin(2 * mp.pi * u)


def cosine_minus_one(u):
    return mp.cos(2 * mp.pi * u) - 1


def split(value):
    """The double nearest to value, and the double nearest to what is left."""
    high = float(value)
    return high, float(value - mpf(high))


def quarter_rows():
    """Rows 0 to 15 as (sin hi, sin lo, cos hi, cos lo) of i/64 turn."""
    rows = []
    for i in range(NUM_ROWS // 4):
        turns = mpf(i) / NUM_ROWS
        rows.append((*split(sine(turns)), *split(cosine_minus_one(turns) + 1)))
    rows[0] = (0.0, 0.0, 1.0, 0.0)
    return rows


def all_rows():
    """The 64 rows: quarter turns swap the columns and change signs. Every zero is +0.0."""

    def negate(x):
        return 0.0 - x

    rows = quarter_rows()
    for _ in range(3):
        for s, s_low, c, c_low in rows[-NUM_ROWS // 4 :]:
            rows.append((c, c_low, negate(s), negate(s_low)))
    return rows


def fit(function, first_power, leading):
    """Coefficients of u^first_power, u^(first_power + 2), .. of `function` on |u| <= MAX_TURNS, as doubles.

    The absolute error counts. Each coefficient is rounded before those after it are fitted, so that they make up for
    its rounding. Least squares on Chebyshev nodes with weights taken from the error itself (Lawson's iteration) come
    close to the smallest possible maximum.
    """
    nodes = [MAX_TURNS * mp.cos(mp.pi * (2 * j + 1) / (4 * NUM_NODES)) for j in range(NUM_NODES)]
    coefficients = [float(leading)]
    while len(coefficients) < NUM_COEFFICIENTS:
        known = len(coefficients)
        rest = [function(u) - polynomial(coefficients, first_power, u) for u in nodes]
        powers = [first_power + 2 * n for n in range(known, NUM_COEFFICIENTS)]
        weights = [mpf(1)] * NUM_NODES
        for _ in range(30):
            solution = least_squares(nodes, rest, powers, weights)
            errors = [abs(r - sum(c * u**n for c, n in zip(solution, powers))) for u, r in zip(nodes, rest)]
            weights = [w * e for w, e in zip(weights, errors)]
            total = sum(weights)
            weights = [w / total for w in weights]
        coefficients.append(float(solution[0]))
    return coefficients


def least_squares(nodes, values, powers, weights):
    """The weighted least-squares solution by normal equations in u / MAX_TURNS; 300 bits make them harmless."""
    size = len(powers)
    basis = [[(u / MAX_TURNS) ** n for n in powers] for u in nodes]
    matrix, right = mp.matrix(size, size), mp.matrix(size, 1)
    for row, value, weight in zip(basis, values, weights):
        for i in range(size):
            right[i] += weight * row[i] * value
            for j in range(size):
                matrix[i, j] += weight * row[i] * row[j]
    solution = mp.lu_solve(matrix, right)
    return [solution[i] / MAX_TURNS**n for i, n in enumerate(powers)]


def polynomial(coefficients, first_power, u):
    return sum(mpf(c) * u ** (first_power + 2 * n) for n, c in enumerate(coefficients))


def worst_error(function, coefficients, first_power):
    grid = [MAX_TURNS * j / 2000 for j in range(2001)]
    return max(abs(function(u) - polynomial(coefficients, first_power, u)) for u in grid)


def scaled(coefficients, first_power):
    """Coefficients for u counted in 2^-64 turns instead of turns; exact, a power of two each."""
    return [float(mpf(c) * mpf(2) ** (-PHASE_BITS * (first_power + 2 * n))) for n, c in enumerate(coefficients)]


def literal(x):
    """The hexadecimal literal of x without its trailing zeros: 0x1.8p+1 for 3."""
    mantissa, exponent = x.hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return mantissa + "p" + exponent


def header():
    p = fit(sine, 1, float(2 * mp.pi))
    q = fit(cosine_minus_one, 2, float(-2 * mp.pi**2))
    p_error = mp.nstr(worst_error(sine, p, 1), 2)
    q_error = mp.nstr(worst_error(cosine_minus_one, q, 2), 2)

    def array(name, values):
        body = ",\n".join("    " + literal(v) for v in values)
        return f"inline constexpr double {name}[{len(values)}] = {{\n{body},\n}};\n"

    rows = " \\\n".join("    {" + ", ".join(literal(v) for v in row) + "}," for row in all_rows())
    return f"""\
#pragma once

// Generated by tools/generate_sincos_table.py; do not edit. These constants decide bits.

namespace posenc::math {{

inline constexpr int kSincosRows = {NUM_ROWS};

/// sin(2 pi u) = u * (P0 + u^2 * (P1 + u^2 * (P2 + u^2 * P3))) for u in units of 2^-64 turns, |u| <= 2^57.
/// P0 is the double nearest to 2 pi, scaled; the others were fitted after it. Largest error: {p_error}.
{array("kSinePolynomial", scaled(p, 1))}
/// cos(2 pi u) - 1 = u^2 * (Q0 + u^2 * (Q1 + u^2 * (Q2 + u^2 * Q3))), same units. Largest error: {q_error}.
{array("kCosinePolynomial", scaled(q, 2))}
// Row i: sine, then cosine of i / {NUM_ROWS} turn, each as the nearest double and the double nearest to the remainder.
// Rows 16 to 63 are exact swaps and negations of rows 0 to 15; every zero is +0.0.
// clang-format off
#define POSENC_SINCOS_ROWS \\
{rows}
// clang-format on

/// The table of host code. 32-byte alignment lets one load take a row.
alignas(32) inline constexpr double kSincosTable[kSincosRows][4] = {{POSENC_SINCOS_ROWS}};

#if defined(__CUDACC__)
/// The table of device code, in global memory: lanes read different rows, which constant memory would serialise.
alignas(32) static __device__ const double kDeviceSincosTable[kSincosRows][4] = {{POSENC_SINCOS_ROWS}};
#endif

#undef POSENC_SINCOS_ROWS

}}  // namespace posenc::math
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true", help="replace the header")
    action.add_argument("--check", action="store_true", help="fail if the header differs")
    arguments = parser.parse_args()

    text = header()
    if arguments.check:
        if HEADER.read_text() != text:
            sys.exit(f"{HEADER.name} differs from what {pathlib.Path(__file__).name} generates")
        print(f"{HEADER.name} is up to date")
    elif arguments.write:
        HEADER.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
