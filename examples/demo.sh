#!/usr/bin/env bash
# posenc on real input, from worked values to a trained model. Run by `make demo`, after the build.
#
#   examples/demo.sh [OUTPUT_FOLDER]                        default demo-output; seen from the project root
#
# PYTHON      an interpreter that can import posenc           default python3
# BUILD_DIR   a CMake build with -DPOSENC_EXAMPLES=ON         default build/dev
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
programs=${BUILD_DIR:-build/dev}/examples/cpp
output=${1:-demo-output}

for program in order_task run_scripted; do
  if [[ ! -x $programs/$program ]]; then
    echo "demo.sh: BUILD_DIR must hold examples/cpp/$program, but $programs has none. Run: make demo" >&2
    exit 1
  fi
done
mkdir -p "$output"

heading() { printf '\n== %s ==\n' "$1"; }

heading 'Worked values, and a large encoding beside the usual formula'
"$python" examples/python/worked_values.py

heading 'Real text: the language reference of Python'
"$python" examples/python/export_text.py "$output/text.txt"

heading 'C++: only order tells a text from its reverse'
"$programs/order_task" "$output/text.txt"

heading 'TorchScript: saved by Python, run by C++ without Python'
"$python" examples/python/save_scripted.py "$output/text.txt" "$output/model.pt" "$output/sample.pt"
"$programs/run_scripted" "$output/model.pt" "$output/sample.pt"

heading 'Pictures of the encoding and of its properties'
"$python" examples/python/pictures.py "$output"

printf '\nDone in %d s. Everything is in %s.\n' "$SECONDS" "$output"
