#!/usr/bin/env bash
# Installs dist/ for a node without Kubernetes: PREFIX/lib/podnet, links in PREFIX/bin, and the stub in CNI_BIN_DIR, each replaced by
# rename so that a runtime never meets half a file. DESTDIR is put before both.
set -euo pipefail
cd "$(dirname "$0")/../.."
prefix=${PREFIX:-/usr/local} bin=${CNI_BIN_DIR:-/opt/cni/bin} root=${DESTDIR:-}
mkdir -p "$root$prefix/lib" "$root$prefix/bin" "$root$bin"
rm -rf "$root$prefix/lib/podnet.new"
mkdir -p "$root$prefix/lib/podnet.new/bin"
cp -a dist/lib "$root$prefix/lib/podnet.new/"
cp -a dist/bin/{podnet,podnetd,podnetctl} "$root$prefix/lib/podnet.new/bin/"
rm -rf "$root$prefix/lib/podnet.old"
[ ! -e "$root$prefix/lib/podnet" ] || mv "$root$prefix/lib/podnet" "$root$prefix/lib/podnet.old"
mv "$root$prefix/lib/podnet.new" "$root$prefix/lib/podnet"
rm -rf "$root$prefix/lib/podnet.old"
for program in podnetd podnetctl; do ln -sfn "$prefix/lib/podnet/bin/$program" "$root$prefix/bin/$program"; done
cp dist/bin/podnet "$root$bin/.podnet.new"
mv "$root$bin/.podnet.new" "$root$bin/podnet"
echo "installed podnetd and podnetctl in $root$prefix/bin, podnet in $root$bin"
