#!/bin/busybox sh
# The emulated machine's first process: this host's files below, all writes in memory, and then the script of the test.
/bin/busybox mkdir -p /dev /proc /sys /host /top /whole
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
for m in /lib/modules/*.ko; do /bin/busybox insmod "$m"; done
exec >/dev/ttyS0 2>&1 </dev/ttyS0
/bin/busybox mount -t virtiofs -o ro host /host || exec /bin/busybox poweroff -f
/bin/busybox mount -t tmpfs -o size=600m none /top
/bin/busybox mkdir /top/upper /top/work
/bin/busybox mount -t overlay -o lowerdir=/host,upperdir=/top/upper,workdir=/top/work none /whole || exec /bin/busybox poweroff -f
script=$(/bin/busybox sed -n 's/.* script=\([^ ]*\).*/\1/p' /proc/cmdline)
/bin/busybox umount /proc /sys
exec /bin/busybox switch_root /whole /bin/bash "$script"
