#!/usr/bin/env bash
# Collects, on a machine with a network, the wheels that tests/gpu/run.sh needs on a GPU machine without one: Python
# 3.12, x86-64, with torch 2.11 and NumPy installed there. fmt and pybind11 come with torch.
# Usage: tests/gpu/pack.sh [FOLDER [NAME...]]
#   FOLDER: where to put them (default .whl at the top of the checkout, which git ignores)
#   NAME: packages to leave out, because the GPU machine has them (cmake is by far the largest)
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-.whl}
without=(numpy "${@:2}")
python=${PYTHON:-.venv/bin/python}
[[ -x $(command -v "$python") ]] || {
  echo "pack: $python was not found; run 'make build' first or set PYTHON" >&2
  exit 1
}

platforms=()
for glibc in 2_28 2_27 2_17 2_12 2_5; do
  platforms+=(--platform "manylinux_${glibc}_x86_64")
done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64)
mkdir -p "$folder"
needed=$(mktemp)
trap 'rm -f "$needed"' EXIT
grep -v '^#' requirements/build.txt | grep -v -E "^($(IFS='|' && echo "${without[*]}"))==" >"$needed"
"$python" -m pip download --disable-pip-version-check -q --only-binary=:all: --python-version 3.12 \
  --implementation cp "${platforms[@]}" -d "$folder" -r "$needed"
echo "pack: $(find "$folder" -name '*.whl' | wc -l) wheels, $(du -sh "$folder" | cut -f1), in $folder"
