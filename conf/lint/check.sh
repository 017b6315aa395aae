#!/usr/bin/env bash
# Lint, types, folder rules. Says nothing but one line when all hold; else every fault of every checker.
set -uo pipefail
cd "$(dirname "$0")/../.."
failed=()
try() { # NAME COMMAND...
  local name=$1 out
  shift
  out=$("$@" 2>&1) || { printf '%s\n' "$out"; failed+=("$name"); }
}
no_leftovers() {
  ! git grep -nIE --untracked 'TODO|FIXME|\.only\(' -- ':!package-lock.json' ':!conf/lint/check.sh'
}
# Node's rmSync gives errors without a code where a disk is read-only: lib/base/files.ts has what to take instead.
no_traps() {
  ! git grep -nE 'rmSync' -- daemon lib cmd ':!lib/base/files.ts'
}
try biome biome check --error-on-warnings
try types tsc --noEmit
try layers node conf/lint/layers.mjs
try leftovers no_leftovers
try traps no_traps
if [ ${#failed[@]} -gt 0 ]; then
  echo "check: failed: ${failed[*]}" >&2
  exit 1
fi
echo "check: lint, types, folder rules hold"
