#!/usr/bin/env bash
# The container runtime interface's protocol description. Prints the path of api.proto.
. "$(dirname "$0")/common.sh"
if ! have_part cri-proto-v1; then
  use_suite unstable
  unpack_deb "$work/deb" golang-k8s-cri-api-dev
  cp "$work/deb/usr/share/gocode/src/k8s.io/cri-api/pkg/apis/runtime/v1/api.proto" "$work/"
  rm -rf "$work/deb"
  done_part
fi
echo "$dir/api.proto"
