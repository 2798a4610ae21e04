#!/usr/bin/env bash
# Runs tests/ecosystem in an environment of its own, layered on the project's: frameworks pin what they like.
# Usage: tools/test_ecosystem.sh PYTHON VENV [PYTEST ARGUMENTS]
set -euo pipefail
cd "$(dirname "$0")/.."
base=$PWD/.venv python=$1 venv=$2
shift 2
[[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
"$base/bin/python" -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
  >"$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/base.pth"
if [[ ! -e $venv/.installed || requirements/ecosystem.txt -nt $venv/.installed ]]; then
  echo "environment: installing requirements/ecosystem.txt into $venv"
  # Without their dependencies: those would bring another torch.
  "$venv/bin/python" -m pip install --disable-pip-version-check -q --no-deps -r requirements/ecosystem.txt
  touch "$venv/.installed"
fi
PATH="$PWD/$venv/bin:$base/bin:$PATH" "$venv/bin/python" -m pytest -q tests/ecosystem "$@"
