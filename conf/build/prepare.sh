#!/usr/bin/env bash
# Gets what building and testing need and this machine lacks: Debian packages, then the npm packages of package-lock.json, among
# them the project's own Node. Does nothing, quickly, when all is there.
set -euo pipefail
cd "$(dirname "$0")/../.."

debs=(ca-certificates iproute2 nftables iptables iputils-ping procps util-linux gcc libc6-dev make xz-utils zstd jq busybox-static git strace curl e2fsprogs)
command -v npm >/dev/null || debs+=(npm)
have=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^installed //p') || have=
missing=()
for deb in "${debs[@]}"; do grep -qx "$deb" <<<"$have" || missing+=("$deb"); done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "prepare: not here, and only root on a Debian machine can install them: ${missing[*]}" >&2
  else
    echo "prepare: installing Debian packages: ${missing[*]}"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -qq update && apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 </dev/null ||
      { cat "$log" >&2; rm -f "$log"; echo "prepare: apt-get could not install ${missing[*]}" >&2; exit 1; }
    rm -f "$log"
  fi
fi

stamp=node_modules/.prepared
key=$(sha256sum package-lock.json)
if [ "$(cat "$stamp" 2>/dev/null || :)" != "$key" ]; then
  echo "prepare: installing npm packages"
  log=$(mktemp)
  npm ci --no-audit --no-fund --loglevel=error >"$log" 2>&1 </dev/null ||
    { cat "$log" >&2; rm -f "$log"; echo "prepare: npm ci failed" >&2; exit 1; }
  rm -f "$log"
  echo "$key" >"$stamp"
fi
