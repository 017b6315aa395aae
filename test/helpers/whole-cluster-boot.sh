# Process 1 of a test's node, in network, mount and process namespaces of its own: whole-cluster-boot.sh FOLDER CGROUP. What programs write
# below /etc, /opt and /var lands in FOLDER, which outlives the node's "boot"; /run is new with each.
set -e
folder=$1 cgroup=$2
# A view of /sys that belongs to the node's network namespace, with the machine's cgroups.
mkdir -p "$folder"/cgroup "$folder"/containerd "$folder"/upper "$folder"/work "$folder"/proc
mount --rbind /sys/fs/cgroup "$folder/cgroup"
mount -t sysfs sysfs /sys
mount --move "$folder/cgroup" /sys/fs/cgroup
# podnetd's delegates, which it puts beside the kubelet's pods, belong to the node's cgroup as well.
for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
  [ -e "$root/cgroup.procs" ] || continue
  mkdir -p "$root/podnet" "$root/$cgroup/podnet"
  mount --bind "$root/$cgroup/podnet" "$root/podnet"
  break
done
for path in etc opt var; do
  mkdir -p "$folder/upper/$path" "$folder/scratch/$path"
  mount -t overlay overlay -o "lowerdir=/$path,upperdir=$folder/upper/$path,workdir=$folder/scratch/$path" "/$path"
done
# What the machine itself has of it is not the node's.
[ -e "$folder/booted" ] || rm -rf /etc/cni /opt/cni /var/lib/cni /var/lib/podnet /var/lib/kubelet /etc/podnet /etc/kubernetes
touch "$folder/booted"
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock /etc/cni/net.d /opt/cni/bin /var/lib/containerd /var/lib/kubelet /var/log/pods
# containerd's snapshots are overlays themselves, which can't lie on one.
mount --bind "$folder/containerd" /var/lib/containerd
# Another boot has another id; the sysctls that a kubelet sets are the whole machine's.
cat /proc/sys/kernel/random/uuid >"$folder/proc/boot_id"
mount --bind "$folder/proc/boot_id" /proc/sys/kernel/random/boot_id
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
  path=${setting%=*} file=$folder/proc/$(basename "${setting%=*}")
  [ -e "/proc/sys/$path" ] || continue
  echo "${setting#*=}" >"$file"
  mount --bind "$file" "/proc/sys/$path"
done
# As on a machine: a pod may ask for mounts that are made later.
mount --make-rshared /
echo "node is up"
# The first process gathers what shims and containers leave.
sleep infinity &
while :; do wait || :; done
