#!/usr/bin/env bash
# For a machine with a GPU, in under five minutes: the CUDA tests and how many ran, then the bandwidth table. Builds
# nothing that is built; BUILD_DIR and PYTHON say where it is. Without a GPU it says so and passes, or fails with
# POSENC_REQUIRE_GPU=1.
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$python" ] || python=python3

if ! "$python" -c 'import sys; sys.path.insert(0, "benchmarks"); import gpu; sys.exit(not gpu.has_gpu())'; then
  exec "$python" benchmarks/gpu.py
fi
failed=0
# The last line counts them; a skipped one is a failure here.
POSENC_REQUIRE_CUDA=1 timeout 180 "$python" -m pytest tests/python -k cuda -q || failed=$?
echo
"$python" benchmarks/gpu.py --seconds 0.1 "$@" || failed=$?
exit "$failed"
