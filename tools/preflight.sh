#!/usr/bin/env bash
# Checks, before anything is downloaded or compiled, what the build needs from the machine: one clear line and exit 1
# for the first thing that is missing. Usage: tools/preflight.sh PYTHON TORCH_VERSION FOLDER_OF_THE_VENV
set -euo pipefail
python=$1 torch=$2 venv=$3
readonly needed_gb=8 # torch with the libraries it brings takes 5.5 GB, the download and the build the rest

fail() {
  echo "prismllm: $*" >&2
  exit 1
}

check_python() {
  command -v "$python" >/dev/null ||
    fail "$python was not found; install Python 3.10 to 3.13 (Debian, Ubuntu: apt-get install python3 python3-venv python3-dev), or name one: make PYTHON=python3.12"
  local version
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "$python does not run"
  case $version in
    3.10 | 3.11 | 3.12 | 3.13) ;;
    *) fail "$python is Python $version; 3.10 to 3.13 are supported, name one with: make PYTHON=python3.12" ;;
  esac
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "$python cannot make a virtual environment; install python3-venv (Debian, Ubuntu: apt-get install python$version-venv)"
  local include
  include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [[ -f $include/Python.h ]] ||
    fail "Python.h of $python was not found in $include; install python3-dev (Debian, Ubuntu: apt-get install python$version-dev)"
}

check_compiler() {
  local compiler='' name
  for name in ${CXX:-c++ g++ clang++}; do
    if command -v "$name" >/dev/null; then
      compiler=$name
      break
    fi
  done
  [[ -n $compiler ]] ||
    fail "no C++ compiler was found${CXX:+ under the name $CXX}; install g++ 12 or newer (Debian, Ubuntu: apt-get install build-essential) or clang 14 or newer"
  local version kind oldest=12
  # clang claims to be gcc 4.2, so its own macro is asked first.
  # Here strings: a compiler that does not read its input must not break a pipe.
  version=$("$compiler" -E -P -x c++ - <<<$'#ifdef __clang__\nclang __clang_major__\n#else\ngcc __GNUC__\n#endif' | tail -n 1) ||
    fail "the compiler $compiler does not run"
  read -r kind version <<<"$version"
  [[ $kind == clang ]] && oldest=14
  [[ $version =~ ^[0-9]+$ && $version -ge $oldest ]] ||
    fail "$compiler is $kind $version; g++ 12 or clang 14 or newer is needed, name one with: make CXX=g++-12"
  "$compiler" -std=c++20 -fsyntax-only -x c++ - <<<$'#include <concepts>\n#include <span>\nint main() {}' 2>/dev/null ||
    fail "$compiler does not compile C++20 with its standard library; install g++ 12 or newer (Debian, Ubuntu: apt-get install build-essential)"
}

check_torch() {
  case $torch in
    2.11.* | 2.12.* | 2.13.* | 2.14.* | 2.15.*) ;;
    *) fail "torch $torch is not supported; 2.11 to 2.15 are" ;;
  esac
}

check_disk() {
  [[ -e $venv/.installed-torch ]] && return # what takes the room is there already
  local free_kb
  free_kb=$(df -Pk "$(dirname "$venv")" | awk 'NR == 2 { print $4 }')
  ((free_kb >= needed_gb * 1000 * 1000)) ||
    fail "$(dirname "$venv") has $((free_kb / 1000000)) GB free; $needed_gb GB are needed for $venv, free some or clone elsewhere"
}

check_python
check_compiler
check_torch
check_disk
