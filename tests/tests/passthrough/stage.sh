# Runs as the emulated machine's first process, in this host's files: TEST, MODULES and HERE stand before it.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs -o mode=755 none /run
mkdir -p /usr/lib/modules
ln -sfn "$MODULES" "/usr/lib/modules/$(uname -r)"
ln -sf /proc/self/fd /dev/fd
hostname emulated
for m in virtio_rng tun; do modprobe "$m"; done
cd "$HERE" || exit
echo "emulated: up after $(cut -d. -f1 /proc/uptime) s"
"${TEST[@]}" >/dev/ttyS1 2>&1 </dev/null
echo "end $?" >/dev/ttyS1
sync
sleep 1
/bin/busybox poweroff -f
