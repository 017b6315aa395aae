#!/usr/bin/env bash
# Packs dist/ with the few libraries that its Node needs into dist/podnet-image.tar, a docker archive that `ctr images import`, `docker
# load` and `podman load` take: without a registry, a daemon or a base image. The same input gives the same bytes, and a second run with
# nothing changed does nothing. IMAGE names it (localhost/podnet:VERSION).
#
# In the image: /opt/podnet (Node without its debugging symbols, the programs, the stub), glibc, libstdc++ and libgcc of Debian 12, and
# dash, which the launchers are written for. Nothing in it is ever written to.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=dist/podnet-image.tar suite=bookworm
packages=(libc6 gcc-12-base libgcc-s1 libstdc++6 dash)
programs=(podnetd podnet-controller podnetctl podnet)

for program in "${programs[@]}"; do
  [ -x "dist/bin/$program" ] || { echo "image: dist/bin/$program is missing: make build" >&2; exit 1; }
done
version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' package.json)
image=${IMAGE:-localhost/podnet:$version}

# Pinned to a suite, not to the machine's own release. Package downloads, and checks of their signatures, are those of the tests' parts.
. test/parts/common.sh
libraries() {
  if ! have_part "image-libraries-$suite-$(sha256sum <<<"${packages[*]}" | cut -c1-8)"; then
    use_suite "$suite"
    unpack_deb "$work" "${packages[@]}"
    for package in "${packages[@]}"; do
      apt-cache show "$package" | sed -n 's/^Version: //p' | head -1 | sed "s/^/$package /"
    done >"$work/versions"
    done_part
  fi
}
libraries
libraries=$dir

# Tests that run side by side may all want it.
exec 7>dist/.podnet-image.lock
flock 7
inputs=$(find dist/lib dist/bin/podnet dist/bin/podnetd dist/bin/podnetctl dist/bin/podnet-controller conf/build/image.sh -type f | LC_ALL=C sort)
key=$({ xargs -d '\n' sha256sum <<<"$inputs"; echo "$image"; cat "$libraries/versions"; } | sha256sum | cut -c1-16)
stamp=dist/.podnet-image.key
if [ -e "$out" ] && [ "$(cat "$stamp" 2>/dev/null || :)" = "$key" ]; then exit 0; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{etc,opt/podnet/bin,proc,run,sys,dev,tmp,var,usr/bin,usr/lib,usr/lib64,usr/share/doc}
ln -s usr/bin "$root/bin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
# Runtimes name network namespaces below /var/run.
ln -s /run "$root/var/run"
echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"

cp -a dist/lib "$root/opt/podnet/lib"
find "$root/opt/podnet/lib" -name '.*' -type f -delete
find "$root/opt/podnet/lib" -type d -name 'musl_*' -exec rm -r {} +
for program in "${programs[@]}"; do cp "dist/bin/$program" "$root/opt/podnet/bin/"; done
# A copy, not the link that it may be.
strip -o "$work/node" dist/lib/node
mv "$work/node" "$root/opt/podnet/lib/node"

# Debian 12's packages still have /lib and /lib64 apart.
for folder in lib lib64 usr/lib usr/lib64; do
  [ -d "$libraries/$folder" ] || continue
  (cd "$libraries/$folder" && find . \( -name 'ld-linux-*' -o -name 'libc.so.*' -o -name 'libm.so.*' -o -name 'libdl.so.*' -o -name 'librt.so.*' \
    -o -name 'libpthread.so.*' -o -name 'libstdc++.so.*' -o -name 'libgcc_s.so.*' -o -name 'libnss_files.so.*' -o -name 'libnss_dns.so.*' \
    -o -name 'libresolv.so.*' \) ! -path './*gconv*' -print0 | tar --null -cf - -T -) | tar -C "$root/usr/${folder#usr/}" -xf -
done
cp "$libraries/bin/dash" "$root/usr/bin/dash"
ln -s dash "$root/usr/bin/sh"
for package in "${packages[@]}"; do
  [ ! -e "$libraries/usr/share/doc/$package/copyright" ] ||
    install -D "$libraries/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/copyright"
done
[ ! -e LICENSE ] || install -D LICENSE "$root/usr/share/doc/podnet/copyright"

pack() { tar --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode='u+rwX,go+rX,go-w' "$@"; }
pack -C "$root" -cf "$work/layer" .
diff_id=$(sha256sum <"$work/layer" | cut -d' ' -f1)
gzip -n -6 <"$work/layer" >"$work/layer.tar"
jq -nc --arg layer "sha256:$diff_id" --arg arch "$(dpkg --print-architecture)" --arg version "$version" --arg libraries "$(paste -sd, "$libraries/versions")" '{
  created: "1970-01-01T00:00:00Z", architecture: $arch, os: "linux",
  config: {
    Env: ["PATH=/opt/podnet/bin:/usr/bin"], Cmd: ["podnetd"], WorkingDir: "/",
    Labels: {"org.opencontainers.image.title": "podnet", "org.opencontainers.image.version": $version,
      "org.opencontainers.image.licenses": "Apache-2.0", "dev.podnet.libraries": $libraries}
  },
  rootfs: {type: "layers", diff_ids: [$layer]}, history: [{created: "1970-01-01T00:00:00Z", created_by: "conf/build/image.sh"}]}' >"$work/config.json"
jq -nc --arg name "$image" '[{Config: "config.json", RepoTags: [$name], Layers: ["layer.tar"]}]' >"$work/manifest.json"
pack -C "$work" -cf "$out.new" manifest.json config.json layer.tar
mv "$out.new" "$out"
echo "$key" >"$stamp"
echo "$out: $image, $(du -m "$out" | cut -f1) MB packed, $(du -m "$work/layer" | cut -f1) MB unpacked"
