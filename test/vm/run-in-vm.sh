#!/usr/bin/env bash
# run-in-vm.sh [--sriov] [--rw DIR]... -- COMMAND [ARG...]
#
# Runs COMMAND in a throw-away QEMU micro-VM with a stock Debian kernel, for tests that need
# network drivers the host kernel lacks (macvlan, ipvlan, 8021q, dummy, vrf, bonding, igb, ...).
#
# The guest's root is the host's own / (9p, read-only) under a tmpfs overlay: same programs, same
# environment, same current directory; writes vanish with the VM, except below each --rw DIR.
# stdout and stderr are streamed separately; the exit code is COMMAND's
# (124: VM_TIMEOUT ran out; 125: the VM itself failed, its console log is printed).
# stdin is /dev/null. The guest has only lo and no way out. --sriov adds two SR-IOV NICs (QEMU igb, an
# Intel 82576 with 7 VFs), eth0 and eth1, plugged into one hub inside QEMU, and an IOMMU for vfio-pci.
#
# Nothing is installed on the host: packages come through apt from Debian $VM_SUITE, with apt's own
# signature checks but a private apt state, and are unpacked into $VM_CACHE. Needs root, bash, apt, xz.
set -euo pipefail

: "${VM_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/podnet/vm}"  # delete it to fetch newer packages
: "${VM_SUITE:=trixie}"   # QEMU >= 8 has igb; it runs on this suite's own libc, whatever the host's
: "${VM_ACCEL:=auto}"     # auto | kvm | tcg
: "${VM_CPUS:=1}"        # under TCG a second virtual CPU slows the boot and node, on a busy host twofold
: "${VM_MEM:=2048}"       # MiB; the overlay takes up to half of it
: "${VM_TIMEOUT:=900}"    # seconds, boot included
: "${VM_MODULES:=}"       # modules to load before COMMAND (most load by themselves on demand)

fail() { echo "run-in-vm: $*" >&2; exit 125; }
nics=() rw=()
while [ $# -gt 0 ]; do case $1 in
  --sriov) nics=(-device intel-iommu,intremap=off) VM_MODULES+=" igb igbvf"
    for i in 0 1; do nics+=(-netdev "hubport,id=h$i,hubid=0"
      -device "pcie-root-port,id=rp$i,chassis=$((i + 1))"
      -device "igb,bus=rp$i,netdev=h$i,mac=52:54:00:12:34:1$i,romfile="); done
    shift ;;
  --rw) rw+=("$(realpath -e "$2")"); shift 2 ;;
  --) shift; break ;;
  *) fail "unknown option $1; usage: run-in-vm.sh [--sriov] [--rw DIR]... -- COMMAND..." ;;
esac; done
[ $# -gt 0 ] || fail "no COMMAND"
[ "$(id -u)" = 0 ] || fail "must be root"

# ---- 1. Fetch and unpack QEMU, the kernel and busybox, once ---------------------------------------
# Of the kernel's modules only those that networking needs, decompressed, with an index for modprobe.
modules='^kernel/((net|lib|virt/lib|crypto|arch)/|fs/(9p|netfs|overlayfs)/|drivers/(vfio|iommu|virtio|dca|ptp|pps|i2c/algos)/|drivers/net/([^/]*$|(bonding|team|ipvlan|vxlan|wireguard)/|ethernet/intel/igb))'

fill_cache() { # not to be called where bash ignores errexit (after ||, in a condition)
  trap 'fail "could not fill $VM_CACHE"' ERR
  local c=$VM_CACHE a=$VM_CACHE/apt f k mirror
  rm -rf "$c"/{apt,debs,sys,modules,initrd,vmlinux}
  mkdir -p "$a"/lists/partial "$c"/debs/partial "$c"/{sys,modules,initrd}
  : >"$a/status" # no package installed: apt fetches every dependency, libc included
  mirror=$(grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | grep -v archive | head -1 || :)
  [ -n "$mirror" ] || fail "no Debian mirror found in /etc/apt/sources.list or sources.list.d"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $VM_SUITE main" >"$a/sources"
  cat >"$a/conf" <<-E
	Dir::State "$a"; Dir::State::status "$a/status"; Dir::Cache "$a"; Dir::Cache::archives "$c/debs";
	Dir::Etc::sourcelist "$a/sources"; Dir::Etc::sourceparts "/dev/null";
	Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
	APT::Sandbox::User "root"; Acquire::Languages "none"; Acquire::Retries "3";
	E
  export APT_CONFIG=$a/conf
  apt-get -qq update
  apt-get -qq install -y --download-only --no-install-recommends qemu-system-x86 busybox-static >/dev/null
  k=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p')
  (cd "$c/debs" && apt-get -qq download "$k")
  unset APT_CONFIG
  for f in "$c"/debs/*.deb; do dpkg-deb -x "$f" "$c/sys"; done
  busybox=$c/sys/usr/bin/busybox

  # An ELF kernel boots directly (PVH), sparing TCG the decompression: cut the zstd payload out.
  k=$(basename "$c"/sys/boot/vmlinuz-*) f=$c/sys/boot/$k k=${k#vmlinuz-}
  tail -c +$(($(LC_ALL=C grep -aboP '\x28\xb5\x2f\xfd' "$f" | head -1 | cut -d: -f1) + 1)) "$f" |
    zstd -dcq >"$c/vmlinux" 2>/dev/null || : # it complains about what follows the payload
  [ "$(head -c4 "$c/vmlinux" | tail -c3)" = ELF ] || cp "$f" "$c/vmlinux"

  cd "$c/sys/usr/lib/modules/$k"
  mkdir -p "$c/modules/lib/modules/$k"
  { ls modules.*; find kernel -name '*.ko.xz' | grep -E "$modules"; } | tar c -T - | tar x -C "$c/modules/lib/modules/$k"
  cd "$c/modules"
  find . -name '*.xz' -print0 | xargs -0 -P"$(nproc)" -n64 xz -d
  "$busybox" depmod -b . "$k"

  # The initramfs: busybox, the modules for 9p and overlay with an index of their own (a short one
  # loads faster), and /init, which prepares the root by busybox (under TCG each dynamic program costs).
  mkdir -p "$c"/initrd/{bin,proc,sys,dev,host,rw,root,"lib/modules/$k"}
  cp "$busybox" "$c/initrd/bin/"
  for f in $("$busybox" --list); do ln -s busybox "$c/initrd/bin/$f" 2>/dev/null || :; done # one of them is itself
  (cd "lib/modules/$k" && tar c modules.builtin modules.order kernel/fs/{9p,netfs,overlayfs} kernel/net/9p) |
    tar x -C "$c/initrd/lib/modules/$k"
  "$busybox" depmod -b "$c/initrd" "$k"
  cat >"$c/initrd/init" <<-'E'
	#!/bin/busybox sh
	export PATH=/bin
	mount -t devtmpfs dev /dev; exec >/dev/ttyS0 2>&1
	mount -t proc proc /proc; mount -t sysfs sys /sys
	modprobe -a 9pnet_virtio 9p overlay
	mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=500000,cache=loose host /host
	mount -t tmpfs rw /rw; mkdir /rw/up /rw/work
	mount -t overlay -o lowerdir=/host,upperdir=/rw/up,workdir=/rw/work root /root
	read -r job </proc/cmdline; job=${job##*vm.job=}; job=${job%% *}
	. "/root$job/setup"
	for m in dev proc sys; do mount --move /$m /root/$m; done
	exec switch_root /root /bin/bash "$job/init"
	E
  chmod +x "$c/initrd/init"
  (cd "$c/initrd" && find . | "$busybox" cpio -o -H newc >"$c/initrd.img" 2>/dev/null)
  rm -rf "$a" "$c/debs" "$c/initrd" "$c/sys/boot" "$c/sys/usr/lib/modules" "$c"/sys/usr/share/{doc,man,locale}
  echo "$k" >"$c/ready"
}
mkdir -p "$VM_CACHE"; VM_CACHE=$(realpath "$VM_CACHE")
exec 9>"$VM_CACHE/lock"; flock 9
if [ ! -e "$VM_CACHE/ready" ]; then echo "run-in-vm: filling $VM_CACHE" >&2; (set -E; fill_cache); fi
exec 9>&-
kernel=$(cat "$VM_CACHE/ready") sys=$VM_CACHE/sys

# ---- 2. KVM where it boots this kernel, else TCG ---------------------------------------------------
# /dev/kvm may open and yet be useless (PVM hosts emulate a stock guest kernel far slower than TCG),
# so try it once per host kernel with a short limit. kvm_pvm is known to be such a case.
if [ "$VM_ACCEL" = auto ]; then
  answer=$VM_CACHE/accel-$(uname -r)
  if [ ! -s "$answer" ]; then
    echo tcg >"$answer"
    if [ -w /dev/kvm ] && [ ! -d /sys/module/kvm_pvm ] &&
       VM_ACCEL=kvm VM_TIMEOUT=20 VM_MODULES= "$0" -- true 2>/dev/null; then echo kvm >"$answer"; fi
  fi
  VM_ACCEL=$(cat "$answer")
fi
case $VM_ACCEL in kvm) cpu=host ;; *) cpu=max,la57=off VM_ACCEL=tcg,thread=multi ;; esac

# ---- 3. What the guest does after mounting its root ------------------------------------------------
job=$(mktemp -d /tmp/run-in-vm.XXXXXX) pids=()
cleanup() { [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || :; rm -rf "$job"; }
trap cleanup EXIT; trap 'exit 130' INT; trap 'exit 143' TERM HUP

{ declare -px; printf 'cd %q || exit 125\nexec' "$PWD"; printf ' %q' "$@"; echo; } >"$job/command"
cat >"$job/setup" <<E
mount -t tmpfs run /root/run; mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm; mount -t devpts -o ptmxmode=666 pts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup; mount -t bpf bpf /sys/fs/bpf
mkdir -p /dev/net; mknod -m 666 /dev/net/tun c 10 200 # opening it loads tun
ln -s /proc/self/fd /dev/fd; for i in in:0 out:1 err:2; do ln -s fd/\${i#*:} /dev/std\${i%:*}; done
# modprobe, for the kernel's own loading on demand too, on the cached modules (the host may have no kmod)
rm -rf /lib/modules; ln -s "/root$VM_CACHE/modules/lib/modules" /lib/modules
mkdir -p /root/usr/lib/modules; rm -rf "/root/usr/lib/modules/$kernel"; ln -s "$VM_CACHE/modules/lib/modules/$kernel" /root/usr/lib/modules/
for i in modprobe insmod rmmod lsmod; do ln -sf "$sys/usr/bin/busybox" /root/usr/sbin/\$i; done
[ -z "$VM_MODULES" ] || modprobe -a $VM_MODULES
i=0; for d in $([ ${#rw[@]} = 0 ] || printf '%q ' "${rw[@]}"); do
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=500000,cache=mmap rw\$i "/root\$d"; i=\$((i + 1)); done
hostname vm; ip link set lo up
for i in /sys/class/virtio-ports/*; do ln -s \${i##*/} /dev/vm-\$(cat \$i/name); done # out, err, rc
E
cat >"$job/init" <<E
read -r t _ </proc/uptime; echo "run-in-vm: COMMAND starts at \$t s"
exec 3> >(exec cat >/dev/vm-out); o=\$!; exec 4> >(exec cat >/dev/vm-err); e=\$!
bash "$job/command" </dev/null >&3 2>&4 3>&- 4>&-; code=\$?
# Let the output drain, but not for ever: something that COMMAND left running may hold it open.
exec 3>&- 4>&-; (sleep 2; kill \$o \$e) & wait \$o \$e; kill \$!
sync; echo \$code >/dev/vm-rc
echo b >/proc/sysrq-trigger; read -r _ <>/dev/ttyS0 # a reset ends QEMU (-no-reboot), at once
E

# ---- 4. Boot ---------------------------------------------------------------------------------------
mkfifo "$job/out" "$job/err"
cat "$job/out" & pids+=($!); cat "$job/err" >&2 & pids+=($!)
share() { echo "local,path=$1,mount_tag=$2,security_model=$3,multidevs=remap"; }
# no_timer_check: on a busy host TCG is late for the timer test during boot, and the kernel panics.
boot=(console=ttyS0 quiet panic=-1 no_timer_check tsc=reliable net.ifnames=0 nokaslr mitigations=off nowatchdog audit=0
  cryptomgr.notests bonding.max_bonds=0 dummy.numdummies=0 ifb.numifbs=0 # else loading one of these makes devices
  iommu=pt intel_iommu=on random.trust_cpu=on rcupdate.rcu_expedited=1 rcupdate.rcu_cpu_stall_suppress=1)
args=(-accel "$VM_ACCEL" -cpu "$cpu" -smp "$VM_CPUS" -m "$VM_MEM" -machine q35 "${nics[@]}"
  -nodefaults -no-user-config -display none -no-reboot -L "$sys/usr/share/qemu" -L "$sys/usr/share/seabios"
  -kernel "$VM_CACHE/vmlinux" -initrd "$VM_CACHE/initrd.img"
  -append "${boot[*]} vm.job=$job"
  -serial "file:$job/console" -device virtio-serial-pci -virtfs "$(share / host none),readonly=on")
for i in out err rc; do
  args+=(-chardev "file,id=$i,path=$job/$i" -device "virtserialport,chardev=$i,name=$i"); done
for i in "${!rw[@]}"; do args+=(-virtfs "$(share "${rw[i]}" "rw$i" passthrough)"); done
# QEMU runs on its own libc and modules, with nothing of the host's.
QEMU_MODULE_DIR=$sys/usr/lib/x86_64-linux-gnu/qemu timeout -k 5 "$VM_TIMEOUT" \
  "$sys/usr/lib64/ld-linux-x86-64.so.2" --library-path "$sys/usr/lib/x86_64-linux-gnu" \
  "$sys/usr/bin/qemu-system-x86_64" "${args[@]}" </dev/null >"$job/qemu" 2>&1 &
qemu=$! pids+=($!) status=0
wait $qemu || status=$?
: 1<>"$job/out" 1<>"$job/err" # an end of file for the two cats, should QEMU never have opened them
wait "${pids[0]}" "${pids[1]}" || :
pids=()
[ -z "${VM_LOG:-}" ] || cp "$job/console" "$VM_LOG" 2>/dev/null || : # keep the guest's console log
case $status in 124 | 137) echo "run-in-vm: no end within $VM_TIMEOUT s" >&2; exit 124 ;; esac
if [ ! -s "$job/rc" ]; then cat "$job/qemu" >&2; tail -n 40 "$job/console" >&2 || :; fail "the VM died (QEMU: $status)"; fi
exit "$(cat "$job/rc")"
