#!/usr/bin/env python3
"""Compares exact.h, the reference of the exactness tests, with mpmath at 60 digits.

usage: check_exact.py exactness_samples [VALUES [SEED]]

The formula is written from docs/formula.md alone. Exits with 1 if a value differs by 1e-30 or more, with 77 if there is
no mpmath.
"""

import random
import subprocess
import sys

try:
    from mpmath import mp, mpf
except ImportError:  # said as GoogleTest says it, so that tests/report.py finds the reason
    print("check_exact.py: Skipped\nmpmath is not installed for this Python\n\n[  SKIPPED ]")
    sys.exit(77)

ORDERS = ("interleaved", "interleaved_cos_first", "split", "split_cos_first")
LIMIT = mpf(2) ** 64
WORST_ALLOWED = 1e-30

Case = tuple[float, float, float, str, str, int, int | float, int]


def exact(base, freq_shift, position_scale, order, odd, d_model, position, column) -> tuple[mpf, mpf]:
    """The value and the angle in rad."""
    width = d_model
    if d_model % 2 == 1 and odd == "zero":
        if column == d_model - 1:
            return mpf(0), mpf(0)
        width = d_model - 1
    elif d_model % 2 == 1 and odd == "cut":
        width = d_model + 1
    sines = [(mp.sin, k) for k in range((width + 1) // 2)]
    cosines = [(mp.cos, k) for k in range((width + 1) // 2)]
    first, second = (cosines, sines) if order.endswith("cos_first") else (sines, cosines)
    if order.startswith("split"):
        columns = first + second
    else:
        columns = [function for pair in zip(first, second) for function in pair]
    function, pair = columns[column]
    exponent = mpf(-2 * pair) / (width - 2 * mpf(freq_shift)) if pair > 0 else mpf(0)
    angle = mpf(position) * mpf(position_scale) * mp.power(mpf(base), exponent)
    return (function(angle) if abs(angle) <= LIMIT else mpf(0)), angle


def random_case(rng: random.Random) -> Case:
    def sign() -> int:
        return rng.choice((-1, 1))

    base = rng.choice((10000.0, 10.0 ** rng.uniform(-12, 300), rng.choice((1.0, 1 + 2**-52, 0.5, 1e-12, 1e300))))
    freq_shift = rng.choice((0.0, 1.0, rng.uniform(-5, 5), rng.choice((1e-20, 0.5, 5e-324, -1e6))))
    scale = rng.choice((1.0, sign() * 10.0 ** rng.uniform(-3, 3), sign() * 10.0 ** rng.uniform(-200, 150), -0.0))
    order, odd = rng.choice(ORDERS), rng.choice(("sin", "zero", "cut"))
    d_model = int(2 ** rng.uniform(0, 11))
    column = rng.randrange(d_model)
    width = d_model + {"sin": 0, "zero": -1, "cut": 1}[odd] * (d_model % 2)
    if width == 2 * freq_shift:
        freq_shift = 0.0
    # A position that gives the column an angle of any size, if there is one; else any.
    angle = exact(base, freq_shift, scale, order, odd, d_model, 1, column)[1]
    size = mpf(2) ** rng.uniform(-8, 64) / abs(angle) if angle != 0 else mpf(1e300)
    if rng.random() < 0.5:
        p = int(size) if 1 <= size < 2**63 else rng.getrandbits(rng.randint(1, 63))
        position: int | float = rng.choice((sign() * p, sign() * p, sign() * p, -(2**63), 2**63 - 1, 0))
    else:
        position = sign() * (float(size) if 1e-300 < size < 1e300 else 2.0 ** rng.uniform(-60, 64))
    return base, freq_shift, scale, order, odd, d_model, position, column


def line_of(case: Case) -> str:
    return " ".join(field.hex() if isinstance(field, float) else str(field) for field in case)


def main(program: str, values: int = 10_000, seed: int = 1) -> int:
    mp.dps = 60
    rng = random.Random(seed)
    cases = [random_case(rng) for _ in range(values)]
    text = "".join(line_of(case) + "\n" for case in cases)
    answers = subprocess.run([program, "values"], input=text, capture_output=True, check=True, text=True).stdout
    worst, worst_case, in_range, wrong_range = mpf(0), cases[0], 0, 0
    for case, answer in zip(cases, answers.splitlines(), strict=True):
        value, rest, said_in_range = answer.split()
        expected, angle = exact(*case)
        if abs(angle / LIMIT - 1) > 1e-12 and (abs(angle) <= LIMIT) != (said_in_range == "1"):
            wrong_range += 1
        if abs(angle) > LIMIT:
            continue
        in_range += 1
        error = abs(mpf(float.fromhex(value)) + mpf(float.fromhex(rest)) - expected)
        if error > worst:
            worst, worst_case = error, case
    print(f"seed {seed}: {in_range} of {values} values up to 2^64 rad, worst difference {float(worst):.3g}")
    if worst >= WORST_ALLOWED or wrong_range or in_range < values // 2:
        print(f"worst at {line_of(worst_case)}; {wrong_range} angles on the wrong side of 2^64 rad", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
