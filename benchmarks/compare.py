"""Our calls beside what they replace, as a Markdown table. Fails if a row exceeds its limit.

python benchmarks/compare.py [--filter TEXT] [--threads 1 2] [--rounds N]
"""

from __future__ import annotations

import argparse
import math
import platform
import sys

import harness
import posenc
import torch
from harness import Row


def usual_formula(seq_len: int, d_model: int) -> torch.Tensor:
    """The twenty lines that are copied from model to model."""
    position = torch.arange(seq_len, dtype=torch.float32).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float32) * (-math.log(10000.0) / d_model))
    table = torch.zeros(seq_len, d_model)
    table[:, 0::2] = torch.sin(position * div_term)
    table[:, 1::2] = torch.cos(position * div_term)
    return table


def founding_limit():
    """R7: 10,000 x 2,048 in 300 ms. The other side sleeps that long, so that the ratio reads as a part of the limit."""
    import time

    return lambda: posenc.encode(10_000, 2_048), lambda: time.sleep(0.3)


def fill(rows: int, columns: int):
    out = torch.zeros(rows, columns)
    return lambda: posenc.encode(rows, columns, out=out), lambda: out.fill_(1.0)


def fresh(rows: int, columns: int):
    return lambda: posenc.encode(rows, columns), lambda: torch.full((rows, columns), 1.0)


def formula(rows: int, columns: int):
    return lambda: posenc.encode(rows, columns), lambda: usual_formula(rows, columns)


def add_table(shape: tuple[int, int, int], dtype: torch.dtype):
    x = torch.randn(shape).to(dtype)
    table = posenc.encode(shape[1], shape[2], dtype=dtype)
    return lambda: posenc.add(x), lambda: x + table


def decode(d_model: int):
    x, table = torch.randn(1, 1, d_model), posenc.encode(4096, d_model)
    return lambda: posenc.add(x, 1234), lambda: x + table[1234:1235]


ROWS = [
    Row("encode 10,000 x 2,048 float32, fresh", "300 ms (R7)", founding_limit, limit=1.0, rounds=5),
    Row("encode 10,000 x 2,048 float32 into out", "`out.fill_(1.0)`", lambda: fill(10_000, 2_048)),
    Row("encode 10,000 x 2,048 float32, fresh", "`torch.full`", lambda: fresh(10_000, 2_048)),
    Row("encode 10,000 x 2,048 float32, fresh", "the usual formula, eager", lambda: formula(10_000, 2_048)),
    *[
        Row(f"add {shape} {str(dtype)[6:]}", "`x + table`", lambda shape=shape, dtype=dtype: add_table(shape, dtype))
        for shape in ((8, 512, 512), (1, 4096, 1024))
        for dtype in (torch.float32, torch.bfloat16)
    ],
    Row("add (1, 1, 512), one decoding step", "`x + table[t:t+1]`", lambda: decode(512)),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="only rows whose text contains this")
    parser.add_argument("--threads", type=int, nargs="+", help="thread counts (default: those of each row)")
    parser.add_argument("--rounds", type=int, help="samples of each row")
    arguments = parser.parse_args()

    machine = platform.processor() or platform.machine()
    print(f"{machine}, {torch.get_num_threads()} threads, torch {torch.__version__}, posenc {posenc.__version__}\n")
    print(harness.HEADER)
    failed = 0
    for row in ROWS:
        if arguments.filter not in f"{row.work} {row.against}":
            continue
        row.rounds = arguments.rounds or row.rounds
        for threads in arguments.threads or row.threads:
            result = harness.measure(row, threads)
            failed += not result.passes
            print(harness.format_result(result), flush=True)
    if failed:
        print(f"\n{failed} rows exceed their limit.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
