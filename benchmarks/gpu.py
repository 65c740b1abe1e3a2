"""What the CUDA kernels reach of a GPU's memory bandwidth, and against what they replace, as a Markdown table.

python benchmarks/gpu.py [--filter TEXT] [--device cuda] [--seconds S]

A kernel that is memory bound takes as long as its bytes: GB/s count every byte read and written once, and "of memcpy"
is the share of what a plain device copy of 1 GiB reaches in the same run. Times are medians of torch.utils.benchmark,
which waits for the device. On a CPU (--device cpu, sizes cut down) the table only shows that this program works.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import posenc
import torch
from torch.utils import benchmark

NO_GPU = "no GPU, or a library without CUDA kernels"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHAPES = ((8, 512, 512), (32, 2048, 1024))
TABLE = (10_000, 2_048)
DECODE = (8, 1, 4096)


@dataclass
class Row:
    """One line of the table; ``others`` are timed beside ``run`` and named in the header."""

    work: str
    bytes_moved: int
    run: Callable[[], object]
    add_table: Callable[[], object] | None = None  # x + table
    clone: Callable[[], object] | None = None  # x.clone()


def has_gpu() -> bool:
    return torch.cuda.is_available() and torch._C._dispatch_has_kernel_for_dispatch_key("posenc::add", "CUDA")


def rows(device: str) -> Iterator[Row]:
    """Made one after the other, so that only one row's tensors exist at a time."""
    small = device == "cpu"
    seq_len, d_model = (100, 64) if small else TABLE
    for dtype in DTYPES:
        name = str(dtype)[6:]
        size = dtype.itemsize
        out = torch.empty(seq_len, d_model, dtype=dtype, device=device)
        positions = torch.arange(seq_len, device=device)
        table_bytes = out.numel() * size
        for form, given in (("encode", seq_len), ("encode.positions", positions)):
            yield Row(
                f"{form} ({seq_len}, {d_model}) {name}",
                table_bytes + (positions.numel() * positions.itemsize if given is positions else 0),
                lambda out=out, given=given: posenc.encode(given, out.size(1), out=out),
                clone=lambda out=out: out.clone(),
            )
        for shape in (*SHAPES, DECODE):
            shape = (2, min(shape[1], 16), 64) if small else shape
            x = torch.randn(shape, device=device).to(dtype)
            offset = 1234 if shape[1] == 1 else 0
            table = posenc.encode(shape[1], shape[2], offset, dtype=dtype, device=device)
            positions = torch.arange(offset, offset + shape[1], device=device)
            if shape[1] == 1:
                positions = positions.expand(shape[:-1])  # a single one would be ambiguous
            moved = 2 * x.numel() * size
            forms: dict[str, Callable[[], object]] = {
                "add": lambda x=x, offset=offset: posenc.add(x, offset),
                "add.positions": lambda x=x, positions=positions: posenc.add(x, positions=positions),
                "add_": lambda x=x, offset=offset: posenc.add_(x, offset),
            }
            for form, run in forms.items():
                yield Row(
                    f"{form} {shape} {name}",
                    moved,
                    run,
                    add_table=lambda x=x, table=table: x + table,
                    clone=lambda x=x: x.clone(),
                )


def seconds_of(run: Callable[[], object], seconds: float) -> float:
    return benchmark.Timer("run()", globals={"run": run}).blocked_autorange(min_run_time=seconds).median


def memcpy_bandwidth(device: str, seconds: float) -> float:
    """Bytes a second, read and written, of a copy that no cache holds."""
    source = torch.empty(2**30 if device != "cpu" else 2**24, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / seconds_of(lambda: target.copy_(source), seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default="", help="only rows whose text contains this")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=0.2, help="time spent on each measurement")
    arguments = parser.parse_args()
    device, seconds = arguments.device, arguments.seconds

    if device == "cuda" and not has_gpu():
        required = os.environ.get("POSENC_REQUIRE_GPU") == "1"
        print(f"benchmarks/gpu.py: nothing measured: {NO_GPU} (POSENC_REQUIRE_GPU=1 makes this a failure)")
        return 1 if required else 0

    machine = torch.cuda.get_device_name() if device == "cuda" else "CPU, small sizes"
    copy = memcpy_bandwidth(device, seconds)
    print(f"{machine}, torch {torch.__version__}, posenc {posenc.__version__}; memcpy {copy / 1e9:.0f} GB/s\n")
    print("| work | time, us | GB/s | of memcpy | / (x + table) | / clone |\n|---|---|---|---|---|---|")
    for row in rows(device):
        if arguments.filter not in row.work:
            continue
        ours = seconds_of(row.run, seconds)
        ratios = [
            "" if other is None else f"{ours / seconds_of(other, seconds):.2f}" for other in (row.add_table, row.clone)
        ]
        rate = row.bytes_moved / ours
        cells = [row.work, f"{ours * 1e6:.4g}", f"{rate / 1e9:.4g}", f"{rate / copy:.0%}", *ratios]
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
