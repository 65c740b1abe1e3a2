#!/usr/bin/env bash
# Every benchmark, as one Markdown table on standard output; fails if a row exceeds its limit.
set -euo pipefail
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" benchmarks/compare.py "$@"
