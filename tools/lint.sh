#!/usr/bin/env bash
# Reads everything that git tracks: Python (ruff), C++ (clang-format), shell (shellcheck). With --fix writes the format.
set -euo pipefail
cd "$(dirname "$0")/.."
if [[ ${1:-} == --fix ]]; then
  ruff format .
  git ls-files -z '*.cpp' '*.hpp' | xargs -0 -r clang-format -i
fi
failed=0
ruff check --quiet . || failed=1
ruff format --check . >/dev/null || {
  ruff format --check . | sed -n 's/^Would reformat: /lint: not formatted: /p'
  failed=1
}
unformatted=$(git ls-files -z '*.cpp' '*.hpp' | xargs -0 -r -n 50 -P "$(nproc)" clang-format --dry-run -Werror 2>&1) || {
  files=$(sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: error: .*/lint: not formatted: \1/p' <<<"$unformatted" | sort -u)
  echo "${files:-$unformatted}"
  failed=1
}
git ls-files -z '*.sh' .ci/run | xargs -0 -r shellcheck || failed=1
((failed == 0)) || {
  echo "lint: failed; 'make format' formats" >&2
  exit 1
}
echo "lint: clean"
