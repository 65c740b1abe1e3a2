#!/usr/bin/env bash
# The kernels alone, then the calls of users beside what they replace, as a Markdown table; fails if a row exceeds its
# limit.
set -euo pipefail
cd "$(dirname "$0")/.."
"${BUILD_DIR:-build/dev}/benchmarks/benchmark_kernels" --benchmark_min_time=0.1
echo
"${PYTHON:-python3}" benchmarks/compare.py "$@"
