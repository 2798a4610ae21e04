#!/usr/bin/env bash
# Builds and installs the package beside another torch, and runs the tests of the backend there.
# Usage: tools/test_torch.sh PYTHON TORCH_VERSION VENV
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 torch=$2 venv=$3
tools/preflight.sh "$python" "$torch" "$venv"
pip() { "$venv/bin/python" -m pip install --disable-pip-version-check -q "$@"; }
[[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
if [[ ! -e $venv/.installed-torch ]]; then
  echo "environment: installing torch $torch into $venv"
  pip "torch==$torch"
  touch "$venv/.installed-torch"
fi
pip -r requirements/build.txt -r requirements/test.txt
echo "build: for torch $torch"
# Not editable: the modules in python/prismllm belong to the torch of .venv.
PATH="$PWD/$venv/bin:$PATH" pip --no-build-isolation --no-deps --force-reinstall .
# From another folder, so that the installed package is the one imported.
mkdir -p build/elsewhere
tests=$(ls "$PWD"/tests/python/test_backend_*.py "$PWD"/tests/python/test_takeover.py)
cd build/elsewhere
# shellcheck disable=SC2086 # one word per file
"$OLDPWD/$venv/bin/python" -m pytest -q --rootdir "$OLDPWD" -c "$OLDPWD/pyproject.toml" $tests
