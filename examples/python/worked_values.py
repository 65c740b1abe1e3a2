"""The worked values of the formula, then a large encoding: time, memory and error beside the usual eager formula.

Run: python examples/python/worked_values.py
"""

import contextlib
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import posenc
import torch
from exact import exact_encoding

SEQ_LEN, D_MODEL = 10_000, 2_048
FAR_POSITIONS = [9_999, 10**6, 10**9, 10**12]
RUNS = 7
MEGABYTE = 1e6
THREE_DIGITS = {"separator": ", ", "formatter": {"float_kind": lambda value: f"{value:.3f}"}}


def eager_encoding(seq_len: int, d_model: int, offset: int = 0) -> torch.Tensor:
    """The code of the PyTorch tutorial on language models, but for the offset and the axis of the batch."""
    position = torch.arange(offset, offset + seq_len).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = torch.zeros(seq_len, d_model)
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe


def library_encoding(seq_len: int, d_model: int, offset: int = 0) -> torch.Tensor:
    return posenc.encode(seq_len, d_model, offset, dtype=torch.float32)


def median_seconds(function: Callable[[int, int], torch.Tensor]) -> float:
    function(SEQ_LEN, D_MODEL)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        function(SEQ_LEN, D_MODEL)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def memory_bytes(field: str) -> int:
    """A line of this process's memory account: VmRSS is its size now, VmHWM the peak of that."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def peak_bytes(function: Callable[[int, int], torch.Tensor]) -> int:
    """The most memory that the process has during a call, above what it has before."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again from the present size
    before = memory_bytes("VmRSS")
    function(SEQ_LEN, D_MODEL)
    return memory_bytes("VmHWM") - before


def print_worked_values() -> None:
    print("positions 3 and 4 at d_model 4")
    table = posenc.positional_encoding(5, 4)
    rows = torch.ops.posenc.encode(2, 4, 3)
    for row, position in enumerate([3, 4]):
        print(f"  torch.ops.posenc.encode      PE({position}) =", np.array2string(rows[row].numpy(), **THREE_DIGITS))
        print(f"  posenc.positional_encoding   PE({position}) =", np.array2string(table[position], **THREE_DIGITS))


def print_large_encoding() -> None:
    contenders = {"posenc.encode": library_encoding, "eager formula": eager_encoding}
    print(f"\n{SEQ_LEN:,} x {D_MODEL:,} float32, {torch.get_num_threads()} threads, median of {RUNS} runs")
    print(f"  {'':14s} {'time':>10s} {'result':>10s} {'peak above result':>18s}")
    for name, function in contenders.items():
        result_bytes = SEQ_LEN * D_MODEL * 4
        extra = max(0, peak_bytes(function) - result_bytes)
        seconds = median_seconds(function)
        print(f"  {name:14s} {seconds * 1e3:7.1f} ms {result_bytes / MEGABYTE:7.1f} MB {extra / MEGABYTE:15.1f} MB")

    print("\nlargest error in a row, against the exact value (a correctly rounded float32 has up to 3e-08)")
    print(f"  {'position':>17s} " + " ".join(f"{name:>14s}" for name in contenders))
    for position in FAR_POSITIONS:
        truth = torch.from_numpy(exact_encoding([position], D_MODEL))
        errors = [(function(1, D_MODEL, position) - truth).abs().max().item() for function in contenders.values()]
        print(f"  {position:17,d} " + " ".join(f"{error:14.1e}" for error in errors))


if __name__ == "__main__":
    print_worked_values()
    print_large_encoding()
