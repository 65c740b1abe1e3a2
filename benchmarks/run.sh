#!/usr/bin/env bash
# The kernels alone, then the calls of users beside what they replace, from C++ and from Python, as Markdown tables; fails
# if a row exceeds its limit.
set -uo pipefail
cd "$(dirname "$0")/.."
programs="${BUILD_DIR:-build/dev}/benchmarks"
status=0
"$programs/benchmark_kernels" --benchmark_min_time=0.1 || status=1
echo
"$programs/benchmark_calls" || status=1
echo
"${PYTHON:-python3}" benchmarks/compare.py "$@" || status=1
exit $status
