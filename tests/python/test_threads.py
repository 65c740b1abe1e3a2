"""Work is shared among torch's threads, and its result does not depend on how many there are."""

from __future__ import annotations

import time
from collections.abc import Callable

import posenc
import pytest
import torch
from cases import assert_same_bits

CALLS = {
    "encode": lambda: posenc.encode(2000, 1024),
    "encode_positions": lambda: posenc.encode(torch.arange(0, 6000, 3), 1024),
    "add": lambda: posenc.add(torch.ones(4, 500, 1024)),
    "add_of_few_rows": lambda: posenc.add(torch.ones(1000, 2, 1024)),
    "add_in_place": lambda: posenc.add_(torch.ones(4, 500, 1024)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_other_threads_take_a_part_of_the_work(call: Callable[[], torch.Tensor]):
    """at::parallel_for runs on the calling thread alone, in silence, where the library is built without OpenMP."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    call()
    process, own = time.process_time(), time.thread_time()
    for _ in range(20):
        call()
    process, own = time.process_time() - process, time.thread_time() - own
    torch.set_num_threads(threads)
    assert process - own > 0.2 * process


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_bits_do_not_depend_on_the_number_of_threads(call: Callable[[], torch.Tensor]):
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        results.append(call())
    torch.set_num_threads(threads)
    for result in results[1:]:
        assert_same_bits(result, results[0])
