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
while IFS= read -r -d '' file; do
  clang-format --dry-run -Werror "$file" 2>/dev/null || {
    echo "lint: not formatted: $file"
    failed=1
  }
done < <(git ls-files -z '*.cpp' '*.hpp')
git ls-files -z '*.sh' .ci/run | xargs -0 -r shellcheck || failed=1
((failed == 0)) || {
  echo "lint: failed; 'make format' formats" >&2
  exit 1
}
echo "lint: clean"
