"""Side-by-side timing: two callables in turn in one process, reported as the median ratio with its quartiles.

Machines are noisy and drift, so no absolute time is compared: in each round both sides run one after the other, each
long enough to time, and the ratio of that round is one sample.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

MIN_SAMPLE_SECONDS = 2e-3


@dataclass
class Row:
    """One line of the table."""

    work: str
    call: str  # the overload or function that ours calls
    against: str
    make: Callable[[], tuple[Callable[[], object], Callable[[], object]]]  # ours and theirs
    limit: float | None = None  # the largest ratio accepted
    result_bytes: int = 0
    threads: tuple[int, ...] = ()  # empty: 1 and all
    rounds: int = 15


@dataclass
class Result:
    row: Row
    threads: int
    in_cache: bool
    ours: float
    theirs: float
    ratios: list[float] = field(repr=False)

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        low, _, high = statistics.quantiles(self.ratios, n=4)
        return low, high

    @property
    def passes(self) -> bool:
        return self.row.limit is None or self.median <= self.row.limit


def _repeats(run: Callable[[], object]) -> int:
    """Calls that make one sample long enough for the clock."""
    run()
    repeats = 1
    while True:
        seconds = _sample(run, repeats) * repeats
        if seconds >= MIN_SAMPLE_SECONDS:
            return repeats
        repeats = max(repeats * 2, int(repeats * MIN_SAMPLE_SECONDS / max(seconds, 1e-9)))


def _sample(run: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def measure(row: Row, threads: int, cache_bytes: int) -> Result:
    torch.set_num_threads(threads)
    ours, theirs = row.make()
    repeats_ours, repeats_theirs = _repeats(ours), _repeats(theirs)
    samples_ours, samples_theirs = [], []
    for i in range(row.rounds):
        # The order alternates, so that neither side always finds the other's data in the cache.
        if i % 2 == 0:
            samples_ours.append(_sample(ours, repeats_ours))
            samples_theirs.append(_sample(theirs, repeats_theirs))
        else:
            samples_theirs.append(_sample(theirs, repeats_theirs))
            samples_ours.append(_sample(ours, repeats_ours))
    ratios = [a / b for a, b in zip(samples_ours, samples_theirs)]
    in_cache = row.result_bytes <= cache_bytes
    return Result(row, threads, in_cache, statistics.median(samples_ours), statistics.median(samples_theirs), ratios)


def processor() -> str:
    """The name of the processor, or an empty string."""
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        return ""
    return names[0] if names else ""


def format_time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


HEADER = (
    "| work | call | against | threads | in cache | ours | theirs | ratio (quartiles) | at most |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def format_result(result: Result) -> str:
    row = result.row
    low, high = result.quartiles
    limit = "" if row.limit is None else f"{row.limit:.3g}{'' if result.passes else ' **exceeded**'}"
    return (
        f"| {row.work} | {row.call} | {row.against} | {result.threads} | {'yes' if result.in_cache else 'no'} | "
        f"{format_time(result.ours)} | {format_time(result.theirs)} | {result.median:.2f} ({low:.2f}-{high:.2f}) | "
        f"{limit} |"
    )
