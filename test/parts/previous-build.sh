#!/usr/bin/env bash
# previous-build.sh COMMIT: an earlier podnet, built from this repository's history with the packages of today. Prints the folder that has
# its bin and lib. Fails where the history does not go back that far (a shallow clone).
. "$(dirname "$0")/common.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
# The clone may belong to somebody else than whoever tests.
history() { git -c safe.directory="$root" -C "$root" "$@"; }
commit=$(history rev-parse --verify --quiet "${1:?usage: previous-build.sh COMMIT}^{commit}") || fail "this clone has no commit $1: fetch its history (git fetch --unshallow)"
if ! have_part "previous-build-${commit:0:12}"; then
  mkdir "$work/tree"
  history archive "$commit" | tar -x -C "$work/tree"
  ln -s "$root/node_modules" "$work/tree/node_modules"
  (cd "$work/tree" && conf/build/bundle.sh && conf/build/stub.sh) >&2
  mv "$work"/tree/dist/{bin,lib} "$work"
  rm -rf "$work/tree"
  done_part
fi
echo "$dir"
