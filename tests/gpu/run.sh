#!/usr/bin/env bash
# What can only be tested on a GPU: one script for one GPU, torch 2.11, Python 3.12, no network, under 8 minutes. Each
# part has its own time limit and a later one runs although an earlier one failed; a table and a JSON come at the end.
# Usage: tests/gpu/run.sh [--cpu] [WHEELS [OUT]]
#   --cpu: the same parts with Gloo on the CPU, to test this script
#   WHEELS: folder made by pack.sh (default .whl), used where it exists
#   OUT: where results go (default build/gpu)
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
device=cuda
if [[ ${1:-} == --cpu ]]; then
  device=cpu
  shift
fi
wheels=${1:-.whl} out=${2:-build/gpu}
python=${PYTHON:-python3}
rm -rf "$out"
mkdir -p "$out"
out=$(realpath "$out")
site=$out/site
export PYTHONPATH=$site PATH=$site/bin:$PATH OMP_NUM_THREADS=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# part NAME SECONDS COMMAND...: its output goes to a file, the end of it is shown where it fails.
part() {
  local name=$1 limit=$2 begin=$SECONDS code=0
  shift 2
  echo "gpu: $name (up to $limit s)"
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.out" 2>"$out/$name.err" </dev/null || code=$?
  echo "$name $code $((SECONDS - begin))" >>"$out/parts.txt"
  ((code == 0)) || tail -n 30 "$out/$name.out" "$out/$name.err"
}

install() {
  set -e
  local pip=("$python" -m pip install -q --no-index --no-deps --target "$site")
  if [[ -d $wheels ]]; then
    "${pip[@]}" "$wheels"/*.whl
  fi
  "${pip[@]}" --upgrade --no-build-isolation .
  cd "$out" # so that the installed package is the one imported
  "$python" -c 'import torch, prismllm._c10d; print("torch", torch.__version__, "cuda", torch.cuda.is_available())'
}
export -f install
export python wheels site out

part build 180 bash -c install
part record 50 "$python" tests/gpu/parts.py record $device "$out"
part spans 30 "$python" tests/gpu/parts.py spans $device "$out"
part capture 50 "$python" tests/gpu/parts.py capture $device "$out"
part memory 40 "$python" tests/gpu/parts.py memory $device "$out"
part swap 110 "$python" tests/gpu/parts.py swap $device "$out"
if [[ $device == cuda ]]; then
  part overhead 50 "$python" bench/bench_recording.py --device cuda --ranks 1 --pairs 50 --timeout 45
else
  part overhead 60 "$python" bench/bench_recording.py --ranks 2 --pairs 3 --steps 2 --timeout 50
fi
"$python" tests/gpu/summary.py "$out"
