#!/bin/busybox sh
# What a cloud image does at its first start, as far as slices need it: reads its NoCloud seed, makes the user with its
# keys, takes the host key that it was given, starts SSH, runs `runcmd`, obeys the power button.
/bin/busybox mkdir -p /dev /proc /sys /seed /etc /home /root /www /var /tmp
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mkdir -p /dev/pts
/bin/busybox mount -t devpts none /dev/pts
for m in /lib/modules/*.ko; do /bin/busybox insmod "$m"; done
/bin/busybox --install -s /bin
exec >/dev/ttyS0 2>&1 </dev/ttyS0
export PATH=/bin:/usr/bin:/usr/sbin
echo "guest: kernel is up after $(cut -d. -f1 /proc/uptime) s"
for d in /dev/vda[0-9]*; do mount -t ext4 "$d" /var 2>/dev/null && break; done
mkdir -p /var/tmp && chmod 1777 /var/tmp /tmp
for d in /dev/vd[b-z]; do
    mount -t iso9660 -o ro "$d" /seed 2>/dev/null || continue
    [ -f /seed/meta-data ] && break
    umount /seed
done
seed() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" /seed/user-data; }
ip link set lo up
hostname "$(sed -n 's/.*"local-hostname":"\([^"]*\)".*/\1/p' /seed/meta-data)"
printf '#!/bin/sh\n[ "$1" = bound ] && ifconfig "$interface" "$ip" netmask "$subnet"\n' >/tmp/dhcp
chmod 755 /tmp/dhcp
ip link set eth0 up
udhcpc -i eth0 -s /tmp/dhcp -q -f -n -t 30 -T 1
ip addr show eth0
user=$(seed name)
printf 'root:x:0:0::/root:/bin/sh\n%s:x:1000:1000::/home/%s:/bin/sh\n' "$user" "$user" >/etc/passwd
printf 'root:x:0:\n%s:x:1000:\n' "$user" >/etc/group
printf 'root:!:::::::\n%s:!:::::::\n' "$user" >/etc/shadow
mkdir -p "/home/$user/.ssh"
sed -n 's/.*"ssh_authorized_keys":\[\([^]]*\)\].*/\1/p' /seed/user-data | tr ',' '\n' | tr -d '"' >"/home/$user/.ssh/authorized_keys"
chmod 700 "/home/$user/.ssh" && chmod 600 "/home/$user/.ssh/authorized_keys"
chown -R "$user" "/home/$user"
(umask 077 && mkdir -p /etc/dropbear && printf '%b' "$(seed ed25519_private)" >/etc/dropbear/openssh)
dropbearconvert openssh dropbear /etc/dropbear/openssh /etc/dropbear/key
dropbear -r /etc/dropbear/key -s -w -E
{
    awk '/^MemTotal/ { print "node_memory_MemTotal_bytes " $2 * 1024 }' /proc/meminfo
    awk '{ print "node_load1 " $1 }' /proc/loadavg
} >/www/metrics
httpd -p 9100 -h /www
for e in /dev/input/event*; do (head -c 24 "$e" >/dev/null && sync && poweroff -f) & done
sed -n 's/.*"runcmd":\[\(\[.*\]\)\].*/\1/p' /seed/user-data | sed 's/\],\[/\n/g' | tr -d '[]' | while read -r line; do
    eval "$(echo "$line" | sed 's/","/" "/g')"
done
echo "guest: ready after $(cut -d. -f1 /proc/uptime) s"
while :; do sleep 100; done
