#!/usr/bin/env bash
# Makes sure that Catch2 (version 2 or 3, for the C++ tests only) is there: as root on Debian and Ubuntu installs it.
set -euo pipefail
compiler=${CXX:-c++}

has_catch2() {
  printf '#if !__has_include(<catch2/catch_all.hpp>) && !__has_include(<catch2/catch.hpp>)\n#error\n#endif\n' |
    "$compiler" -fsyntax-only -x c++ - 2>/dev/null
}

has_catch2 && exit
if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
  echo "environment: installing catch2"
  if { apt-get -qq update && apt-get -qq install -y --no-install-recommends catch2; } >/dev/null && has_catch2; then
    exit
  fi
fi
echo "prismllm: Catch2 was not found; install it (Debian, Ubuntu: apt-get install catch2)" >&2
exit 1
