#!/usr/bin/env bash
# The tour of README.md in one go: capture, look, replay, draw. PRISM names the command.
set -euo pipefail
cd "$(dirname "$0")/.."
prism=${PRISM:-prism}
out=demo-out
mkdir -p $out

step() { printf '\n== %s\n' "$*"; }
run() {
  printf '$ prism %s\n' "$*"
  "$prism" "$@"
}

step "16 logical ranks of an unmodified GPT training (tensor x pipeline x data parallel) on 2 slots"
run capture -n 16 --slots 2 -o $out/gpt3d.prism examples/gpt3d.py
step "What the trace holds"
run info $out/gpt3d.prism
step "The same job with every rank virtual: waits are computed, not played back"
run replay $out/gpt3d.prism
step "Files to look at"
run report $out/gpt3d.prism -o $out/report.html
run export --format chrome $out/gpt3d.prism -o $out/gpt3d.chrome.json
for browser in chromium chromium-browser google-chrome; do
  if command -v $browser >/dev/null; then
    # --no-sandbox: as root (in a container) Chromium does not start without it; the page is our own file.
    timeout 60 $browser --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1400,1800 \
      --virtual-time-budget=10000 --screenshot=$out/timeline.png "file://$PWD/$out/report.html" >/dev/null 2>&1 ||
      rm -f $out/timeline.png
    break
  fi
done

cat <<TEXT

demo: done. Look at
  $out/report.html        the timeline by rank, exposed communication, memory (any browser)
  $out/gpt3d.chrome.json  the same timeline for Perfetto (https://ui.perfetto.dev, "Open trace file")
TEXT
[[ ! -e $out/timeline.png ]] || echo "  $out/timeline.png       a picture of the report"
