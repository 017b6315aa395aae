#!/usr/bin/env bash
# image.sh NAME:TAG [COMMAND...]: a container image (docker archive) that holds only Debian's static busybox and runs COMMAND, made
# without a registry. Prints the archive's path.
. "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || fail "usage: image.sh NAME:TAG [COMMAND...]"
name=$1
shift
[ $# -gt 0 ] || set -- /bin/sleep 86400
busybox=$(command -v busybox) || fail "busybox is missing (Debian package busybox-static)"
key=$(printf '%s\n' "$name" "$@" "$(sha256sum <"$busybox")" "$(sha256sum <"$0")" | sha256sum | cut -c1-16)
if ! have_part "image-$key"; then
  root=$work/root
  mkdir -p "$root"/{bin,etc,tmp,proc,sys,dev}
  cp "$busybox" "$root/bin/busybox"
  for applet in $("$busybox" --list); do ln -s busybox "$root/bin/$applet" 2>/dev/null || :; done # one of them is itself
  echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  tar --owner=0 --group=0 --mtime=@0 --sort=name -C "$root" -cf "$work/layer.tar" .
  arch=$(dpkg --print-architecture)
  jq -nc --arg layer "sha256:$(sha256sum <"$work/layer.tar" | cut -d' ' -f1)" --arg arch "$arch" \
    '{architecture: $arch, os: "linux", config: {Entrypoint: $ARGS.positional, Env: ["PATH=/bin"]},
      rootfs: {type: "layers", diff_ids: [$layer]}, history: [{created_by: "busybox"}]}' --args -- "$@" >"$work/config.json"
  jq -nc --arg name "$name" '[{Config: "config.json", RepoTags: [$name], Layers: ["layer.tar"]}]' >"$work/manifest.json"
  tar -C "$work" -cf "$work/image.tar" manifest.json config.json layer.tar
  rm -rf "$root" "$work/layer.tar"
  done_part
fi
echo "$dir/image.tar"
