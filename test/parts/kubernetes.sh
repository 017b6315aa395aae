#!/usr/bin/env bash
# kubernetes.sh [PROGRAM...]: programs of Kubernetes 1.20.2, built from Debian 12's source package with Debian 12's Go, and Debian's
# etcd and kubectl. Prints the folder of the executables. Without arguments all that a single-node cluster needs.
# The first build takes some minutes of processor time at low priority; each program is kept when it is done.
. "$(dirname "$0")/common.sh"
version=1.20.2
# The second number is that of the way they are built.
bin=$cache/parts/kubernetes-$version-2
source=$cache/parts/kubernetes-$version-source
all=(kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl etcd)

# The tree as GOPATH builds want it, with its one generated file that the source package lacks, and the compiler.
prepare_source() {
  local tree=$source.new/go/src/k8s.io/kubernetes archives
  [ ! -e "$source/.done" ] || return 0
  rm -rf "$source" "$source.new"
  mkdir -p "$tree" "$source.new/src"
  use_suite bookworm
  say "fetching the source of Kubernetes $version"
  (cd "$source.new/src" && apt-get -qq source --download-only kubernetes >&2)
  archives=("$source.new"/src/kubernetes_*"$version"*.orig.tar.*)
  [ -e "${archives[0]}" ] || fail "Debian 12's source package of Kubernetes is no longer $version"
  tar -xf "${archives[0]}" -C "$tree" --strip-components=1
  rm -rf "$source.new/src"
  unpack_deb "$source.new/sys" golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev
  # The vendored one reads a runtime structure that Go 1.18 changed: the API server would crash after a minute.
  rm -rf "$tree/vendor/github.com/modern-go/reflect2"
  cp -r "$source.new/sys/usr/share/gocode/src/github.com/modern-go/reflect2" "$tree/vendor/github.com/modern-go/"
  mv "$source.new" "$source"
  generate_openapi
  touch "$source/.done"
}

# One package at a time at low priority: a small machine stays usable meanwhile.
go_in_tree() {
  (cd "$source/go/src/k8s.io/kubernetes" &&
    GOROOT=$source/sys/usr/lib/go-1.19 GOPATH=$source/go GOCACHE=$source/gocache GO111MODULE=off GOFLAGS="-p=${PODNET_BUILD_JOBS:-1}" \
      CGO_ENABLED=0 nice -n 19 "$source/sys/usr/lib/go-1.19/bin/go" "$@" >&2)
}

# What the tree's own Makefile does with make, rsync and five generators more.
generate_openapi() {
  local tree=$source/go/src/k8s.io/kubernetes dirs
  say "generating the API description"
  go_in_tree build -o "$source/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  dirs=$(cd "$tree" && find -L pkg cmd plugin vendor/k8s.io -name '*.go' -not -name '*_test.go' \
    -not -path 'vendor/k8s.io/code-generator/*' -not -path 'vendor/k8s.io/sample-*' -print0 |
    xargs -0 grep -lE '^// *\+k8s:openapi-gen=' | xargs -n1 dirname | LC_ALL=C sort -u | sed 's,^,k8s.io/kubernetes/,' | paste -sd,)
  (cd "$tree" && PATH=$source/sys/usr/lib/go-1.19/bin:$PATH GOROOT=$source/sys/usr/lib/go-1.19 GOPATH=$source/go GO111MODULE=off \
    nice -n 19 "$source/openapi-gen" --logtostderr -i "$dirs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$source/violations" >&2)
  [ -s "$tree/pkg/generated/openapi/zz_generated.openapi.go" ] || fail "openapi-gen wrote nothing"
}

build() {
  local v=k8s.io/kubernetes/vendor/k8s.io flags=() package
  for package in component-base client-go/pkg; do
    flags+=("-X $v/${package%/}/version.gitVersion=v$version -X $v/$package/version.gitMajor=1 -X $v/$package/version.gitMinor=20")
  done
  prepare_source
  say "building $1 (minutes, once)"
  # The clouds' own clients are a good part of the whole, and of no use here. Nor is Docker, which a kubelet waits for at its start.
  go_in_tree build -tags providerless,dockerless -ldflags "-s -w ${flags[*]}" -o "$bin/$1.new" "./cmd/$1"
  mv "$bin/$1.new" "$bin/$1"
}

from_package() { # PROGRAM PACKAGE
  use_suite bookworm
  rm -rf "$bin/$1.deb"
  unpack_deb "$bin/$1.deb" "$2"
  mv "$bin/$1.deb/usr/bin/$1" "$bin/$1"
  rm -rf "$bin/$1.deb"
}

[ $# -gt 0 ] || set -- "${all[@]}"
mkdir -p "$bin"
for program in "$@"; do
  [ -x "$bin/$program" ] && continue
  exec 9>"$bin/lock"
  flock 9
  if [ ! -x "$bin/$program" ]; then
    case $program in
      etcd) from_package etcd etcd-server ;;
      kubectl) from_package kubectl kubernetes-client ;;
      *) build "$program" ;;
    esac
  fi
  exec 9>&-
done
# Two gigabytes that nobody needs once everything is built.
[ ! -e "$source" ] || for program in "${all[@]}"; do [ -x "$bin/$program" ] || exec echo "$bin"; done
rm -rf "$source"
echo "$bin"
