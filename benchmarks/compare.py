"""Our calls beside what they replace, as a Markdown table. Fails if a row exceeds its limit.

python benchmarks/compare.py [--filter TEXT] [--threads 1 2] [--rounds N]

Each row names the overload that was called; "in cache" tells whether the result fits the last-level cache. The
environment variable POSENC_SIMD measures a narrower instruction set.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Iterator

import harness
import peers
import posenc
import torch
from harness import Row

SIMD = torch.ops.posenc._simd_level()
CACHE = torch.ops.posenc._last_level_cache()
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TABLE = (10_000, 2_048)


def name(dtype: torch.dtype) -> str:
    return str(dtype)[6:]


def size_of(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    size = dtype.itemsize
    for extent in shape:
        size *= extent
    return size


def by_level(avx512: float, avx2: float) -> float:
    return avx512 if SIMD == "avx512" else avx2


def encode_rows() -> Iterator[Row]:
    rows, columns = TABLE
    size = size_of(TABLE, torch.float32)

    def fill(other):
        out = torch.zeros(TABLE)
        return lambda: posenc.encode(rows, columns, out=out), other(out)

    def sin():
        angles, out, other = torch.rand(TABLE) * 100, torch.zeros(TABLE), torch.zeros(TABLE)
        return lambda: posenc.encode(rows, columns, out=out), lambda: torch.sin(angles, out=other)

    def split(other):
        out = torch.zeros(TABLE)
        return lambda: posenc.encode(rows, columns, out=out, order="split", freq_shift=1.0), other(out)

    def fresh(other):
        return lambda: posenc.encode(rows, columns), other

    into, new = f"encode {rows:,} x {columns:,} float32 into `out`", f"encode {rows:,} x {columns:,} float32, fresh"
    limit = by_level(1.7, 2.5) if size <= CACHE else 1.3
    yield Row(into, "encode.out", "`out.fill_(1.0)`", lambda: fill(lambda out: lambda: out.fill_(1.0)), limit, size)
    yield Row(into, "encode.out", "`torch.sin(angles, out=)`, angles ready", sin, 0.6, size)
    in_place = "fairseq2's formula, in place"
    yield Row(
        f"{into}, its order", "encode.out", in_place,
        lambda: split(lambda out: lambda: peers.fill_in_place(out)), 0.45, size, rounds=7,
    )  # fmt: skip
    yield Row(new, "encode", "`torch.full`", lambda: fresh(lambda: torch.full(TABLE, 1.0)), 0.5, size)
    yield Row(
        new,
        "encode",
        "the usual formula, eager",
        lambda: fresh(lambda: peers.usual_formula(*TABLE)),
        1 / 8,
        size,
        rounds=7,
    )
    yield Row(new, "encode", "the usual formula, compiled", lambda: fresh(compiled()), 1 / 4, size, rounds=7)
    yield Row(new, "encode", "300 ms", lambda: fresh(lambda: time.sleep(0.3)), 1.0, size, rounds=3)


def compiled():
    function = torch.compile(peers.usual_formula)
    function(*TABLE)
    return lambda: function(*TABLE)


def add_rows() -> Iterator[Row]:
    def table(shape, dtype, other, transposed=False):
        x = torch.randn(shape).to(dtype)
        ready = posenc.encode(shape[1], shape[2], dtype=dtype)
        if transposed:  # (seq_len, batch, d_model)
            x, ready = x.transpose(0, 1).contiguous(), ready.unsqueeze(1)
            return lambda: posenc.add(x, seq_dim=0), other(x, ready)
        return lambda: posenc.add(x), other(x, ready)

    def plus(x, ready):
        return lambda: x + ready

    def clone(x, ready):
        return lambda: x.clone()

    def through_float(x, ready):
        ready = ready.float()
        return lambda: (x.float() + ready).to(x.dtype)

    def row(shape, dtype, against, other, limit, **kwargs):
        label = f"add {shape} {name(dtype)}{', seq first' if kwargs else ''}"
        size = size_of(shape, dtype)
        return Row(label, "add", against, lambda: table(shape, dtype, other, **kwargs), limit, size)

    plain = "`x + table[:S]`"
    for dtype in DTYPES:
        yield row((8, 512, 512), dtype, plain, plus, 0.85)
        yield row((8, 512, 512), dtype, plain, plus, 0.85, transposed=True)
        yield row((32, 128, 768), dtype, plain, plus, 1.0)
        yield row((1, 4096, 1024), dtype, plain, plus, 0.9)
        yield row((1, 128, 512), dtype, plain, plus, by_level(1.2, 1.8))
    yield row((8, 512, 2048), torch.float32, plain, plus, 0.5)
    for shape in ((8, 512, 512), (32, 128, 768), (8, 512, 2048)):
        for dtype in DTYPES:
            yield row(shape, dtype, "`x.clone()`", clone, 1.1 if dtype == torch.float32 else 1.3)
    for dtype in DTYPES[1:]:
        yield row((8, 512, 512), dtype, "`(x.float() + table).to(x.dtype)`", through_float, 0.25)


def small_rows() -> Iterator[Row]:
    one, one_table = torch.randn(1, 1, 512), posenc.encode(4096, 512)
    eight, eight_table = torch.randn(8, 1, 1024), posenc.encode(4096, 1024)
    positions = torch.tensor([[3], [999], [17], [2048], [4095], [512], [64], [1234]])
    tiny = torch.randn(1, 1, 8)
    kept, kept_positions = torch.ops.posenc.add.default, torch.ops.posenc.add.positions
    step = "add (1, 1, 512) at an offset, one decoding step"
    steps = "add (8, 1, 1024) at a position for each row"
    least = "add (1, 1, 8), what a call costs"

    def small(label, call, against, ours, theirs, limit):
        return Row(label, call, against, lambda: (ours, theirs), limit, 0, threads=(1,), rounds=31)

    plus = "`x + table[t:t+1]`"
    yield small(step, "add.default kept", plus, lambda: kept(one, 1234), lambda: one + one_table[1234:1235], 1.2)
    yield small(step, "posenc.add", plus, lambda: posenc.add(one, 1234), lambda: one + one_table[1234:1235], None)
    plus = "`x + table[positions]`"
    theirs = lambda: eight + eight_table[positions]  # noqa: E731
    yield small(steps, "add.positions kept", plus, lambda: kept_positions(eight, positions), theirs, 0.5)
    yield small(steps, "posenc.add", plus, lambda: posenc.add(eight, positions=positions), theirs, None)
    theirs = lambda: torch.add(tiny, tiny)  # noqa: E731
    yield small(least, "add.default kept", "`torch.add`", lambda: kept(tiny), theirs, 2.0)
    yield small(least, "posenc.add", "`torch.add`", lambda: posenc.add(tiny), theirs, 2.5)


def position_rows() -> Iterator[Row]:
    scattered = torch.randint(0, 2**40, (65_536,), generator=torch.Generator().manual_seed(0))
    timesteps = torch.tensor([999.0, 875.5, 750.0, 625.25, 500.0, 375.0, 250.0, 1.0])
    yield Row(
        "encode 65,536 scattered positions, d_model 256", "encode.positions", "the usual formula in float64",
        lambda: (lambda: posenc.encode(scattered, 256), lambda: peers.usual_formula_at(scattered, 256)),
        0.25, size_of((65_536, 256), torch.float32),
    )  # fmt: skip
    yield Row(
        "encode 8 timesteps, d_model 320", "encode.positions", "diffusers' formula",
        lambda: (
            lambda: posenc.encode(timesteps, 320, order="split_cos_first"),
            lambda: peers.timestep_embedding(timesteps, 320),
        ),
        0.125, 0, threads=(1,), rounds=31,
    )  # fmt: skip


def training_rows() -> Iterator[Row]:
    shape, dropout = (8, 512, 512), 0.1
    work, size = f"module {shape} float32, training, dropout {dropout}", size_of(shape, torch.float32)

    def against(other):
        x = torch.randn(shape)
        module = posenc.nn.PositionalEncoding(shape[2], dropout=dropout)
        return lambda: module(x), lambda: other(x)

    evaluated = posenc.nn.PositionalEncoding(shape[2], dropout=dropout).eval()
    yield Row(work, "add_dropout", "the same in evaluation", lambda: against(evaluated), 3.0, size)
    yield Row(
        work, "add_dropout", "the usual module", lambda: against(peers.UsualModule(shape[2], dropout)), 1 / 8, size
    )


def all_rows() -> Iterator[Row]:
    yield from encode_rows()
    yield from add_rows()
    yield from training_rows()
    yield from small_rows()
    yield from position_rows()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="only rows whose text contains this")
    parser.add_argument("--threads", type=int, nargs="+", help="thread counts (default: 1 and all, or those of a row)")
    parser.add_argument("--rounds", type=int, help="samples of each row")
    arguments = parser.parse_args()

    all_threads = torch.get_num_threads()
    print(
        f"{harness.processor() or platform.machine()}, {all_threads} threads, {CACHE / 2**20:.0f} MB last-level cache, "
        f"loops for {SIMD}, torch {torch.__version__}, posenc {posenc.__version__}\n"
    )
    print(harness.HEADER)
    exceeded = total = 0
    for row in all_rows():
        if arguments.filter not in f"{row.work} {row.call} {row.against}":
            continue
        row.rounds = arguments.rounds or row.rounds
        for threads in arguments.threads or row.threads or sorted({1, all_threads}):
            result = harness.measure(row, threads, CACHE)
            exceeded += not result.passes
            total += 1
            print(harness.format_result(result), flush=True)
    print(f"\n{exceeded} of {total} rows exceed their limit.")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
