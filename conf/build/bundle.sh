#!/usr/bin/env bash
# Bundles the programs that run on Node into dist/lib, with a launcher for each in dist/bin. dist can be moved or copied into an
# image as a whole: it has its own Node and the one native addon beside the bundles.
set -euo pipefail
cd "$(dirname "$0")/../.."
case $(uname -m) in x86_64) arch=x64 ;; aarch64) arch=arm64 ;; *) echo "bundle: no Node for $(uname -m)" >&2; exit 1 ;; esac
mkdir -p dist/bin dist/lib/node_modules/@koromix

entries=()
for program in podnetd podnetctl podnet-controller; do
  [ -e "cmd/$program/main.ts" ] || { echo "bundle: cmd/$program/main.ts is missing" >&2; exit 1; }
  entries+=("$program=cmd/$program/main.ts")
done
# Shared and rarely needed parts (a cluster's API) are files of their own, loaded when they are used. Those of the build before go when the new ones
# are there: what runs meanwhile finds either.
stamp=$(mktemp dist/lib/.stamp.XXXXXX)
trap 'rm -f "$stamp"' EXIT
# Packages in CommonJS call require(): the banner gives them one.
"node_modules/@esbuild/linux-$arch/bin/esbuild" "${entries[@]}" --bundle --splitting --chunk-names=chunks/[name]-[hash] --platform=node --format=esm --target=node24 \
  --outdir=dist/lib   --out-extension:.js=.mjs --external:koffi --legal-comments=none --log-level=warning \
  --banner:js='import{createRequire as podnetRequire}from"node:module";const require=podnetRequire(import.meta.url);'
find dist/lib/chunks -type f ! -newer "$stamp" -delete

node=node_modules/node-linux-$arch/bin/node
[ dist/lib/node -ef "$node" ] || { rm -f dist/lib/node; ln "$node" dist/lib/node 2>/dev/null || cp "$node" dist/lib/node; }
if [ ! -e dist/lib/node_modules/koffi/.copied ] || [ node_modules/koffi/package.json -nt dist/lib/node_modules/koffi/.copied ]; then
  rm -rf dist/lib/node_modules/koffi "dist/lib/node_modules/@koromix/koffi-linux-$arch"
  # Its JavaScript only: sources and headers are for building the addon.
  (cd node_modules && find koffi -name vendor -prune -o \( -name '*.js' -o -name '*.cjs' -o -name package.json -o -name 'LICENSE*' \) -print) |
    tar -C node_modules -cf - -T - | tar -C dist/lib/node_modules -xf -
  cp -r "node_modules/@koromix/koffi-linux-$arch" dist/lib/node_modules/@koromix/
  touch dist/lib/node_modules/koffi/.copied
fi

# A launcher execs its program: the pid that a supervisor sees is the program's. Memory stays flat with a young generation
# of 4 MiB (collected quicker by one thread) and few malloc arenas.
launcher() {
  cat >"dist/bin/$1.new" <<-L
	#!/bin/sh
	self=\$0
	while [ -L "\$self" ]; do
	  link=\$(readlink "\$self")
	  case \$link in /*) self=\$link ;; *) self=\${self%/*}/\$link ;; esac
	done
	case \$self in */*) lib=\${self%/*}/../lib ;; *) lib=../lib ;; esac
	${3:-:}
	exec "\$lib/node" $2 "\$lib/$1.mjs" "\$@"
	L
  chmod +x "dist/bin/$1.new"
  mv "dist/bin/$1.new" "dist/bin/$1"
}
young="--min-semi-space-size=4 --max-semi-space-size=4 --no-parallel-scavenge"
arenas="export MALLOC_ARENA_MAX=2 MALLOC_TRIM_THRESHOLD_=131072"
launcher podnetd "$young" "$arenas"
launcher podnetctl ""
launcher podnet-controller "$young" "$arenas"
