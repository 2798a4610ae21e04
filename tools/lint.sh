#!/usr/bin/env bash
# Reads everything that git tracks: Python (ruff), C++ (clang-format), shell (shellcheck).
set -euo pipefail
cd "$(dirname "$0")/.."
ruff check --quiet .
ruff format --check --quiet . || {
  ruff format --check . | tail -n 20
  exit 1
}
git ls-files -z '*.cpp' '*.hpp' | xargs -0 -r clang-format --dry-run -Werror
git ls-files -z '*.sh' .ci/run | xargs -0 -r shellcheck
echo "lint: clean"
