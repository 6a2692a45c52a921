#!/bin/sh
# Runs in the machine as root, from the second disk: the agent by its installer, under its unit. Each fact is a line
# that begins with its name.
set -eu
cd /run/payload
UNIT=virtengine-node-agent.service
ETC=/etc/virtengine/node-agent
show() { systemctl show --property "$1" --value $UNIT; }
# wait_for SECONDS COMMAND…
wait_for() {
    left=$1
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || {
            echo "waited in vain for $*"
            journalctl --unit $UNIT --no-pager --lines 40
            exit 1
        }
        sleep 1
    done
}

echo "boots"
./provider.sh

# The gateway is on the loopback address of the machine around this one, and so its certificate says.
cat >/etc/systemd/system/gateway.socket <<SOCKET
[Socket]
ListenStream=127.0.0.1:$(cat port)
SOCKET
cat >/etc/systemd/system/gateway.service <<SERVICE
[Service]
ExecStart=/lib/systemd/systemd-socket-proxyd 10.0.2.2:$(cat port)
SERVICE
systemctl daemon-reload
systemctl start gateway.socket

mkdir /tmp/release
cp virtengine-node-agent install-node-agent.sh /tmp/release
/tmp/release/install-node-agent.sh
cp config "$ETC/config.yaml"
for file in agent.key agent.pub agent.key.next agent.next.pub; do
    install -o virtengine -g virtengine -m 600 keys/$file $ETC/keys/$file
done
install -o virtengine -g virtengine -m 600 token $ETC/token
echo "groups $(id -Gn virtengine)"
systemctl enable --quiet --now virtengine-node-helper.socket

echo "doctor-before $(virtengine-node-agent doctor --output json | tr -d '\n')"
systemctl enable --quiet $UNIT
# Type=notify: this returns once the agent says that it is ready.
systemctl start $UNIT
echo "ready $(show Type) $(show ActiveState) $(show SubState)"
wait_for 120 virtengine-node-agent status --output json >/tmp/status
echo "status $(tr -d '\n' </tmp/status)"
echo "doctor-after $(virtengine-node-agent doctor --output json | tr -d '\n')"
echo "metrics $(bash -c 'exec 3<>/dev/tcp/127.0.0.1/9000; printf "GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n" >&3; grep -c ^virtengine_ <&3')"

systemd-analyze security --no-pager $UNIT | tail -n 1 | sed 's/^[^:]*: */security /'
systemd-analyze security --no-pager virtengine-node-helper@x.service | tail -n 1 | sed 's/^[^:]*: */security-helper /'
echo "helper $(stat -c '%a %U' /run/virtengine-node-helper.sock)"

# Tasks: not without a section in the configuration, and then not again and again.
TASKS=virtengine-node-tasks.service
of_tasks() { systemctl show --property "$1" --value $TASKS; }
systemctl start $TASKS || true
echo "tasks-without $(of_tasks ActiveState) $(of_tasks ExecMainStatus) $(of_tasks NRestarts)"
printf 'tasks:\n  user: nobody\n' >>$ETC/config.yaml
systemctl reset-failed $TASKS
systemctl start $TASKS
echo "tasks $(of_tasks ActiveState) $(of_tasks SubState) $(stat -c %U /var/lib/virtengine/tasks)"
systemctl enable --quiet $TASKS

# A key that was registered and whose command was cut off before it put it in its place: the agent does it, in its unit.
install -o virtengine -g virtengine -m 600 next-token $ETC/next-token
VIRTENGINE_AGENT_FAULT=rotate.registered virtengine-node-agent key rotate --token-file $ETC/next-token || true
promoted() { cmp -s $ETC/keys/agent.pub keys/agent.next.pub && [ ! -e $ETC/keys/agent.key.next ]; }
wait_for 120 promoted
echo "rotated $(cat $ETC/keys/agent.pub)"

# A program that it asks and that is too large for the unit ends alone: here a check of the site's, which passes all the same.
mkdir $ETC/checks.d
printf '#!/bin/sh\ndd if=/dev/zero of=/dev/null bs=200M count=1\nexit 0\n' >$ETC/checks.d/large
chmod 755 $ETC/checks.d $ETC/checks.d/large
printf 'health:\n  check_timeout: 60s\n' >>$ETC/config.yaml
systemctl restart $UNIT
pid=$(show MainPID)
killed() { grep -q '^oom_kill [1-9]' "/sys/fs/cgroup$(show ControlGroup)/memory.events"; }
wait_for 120 killed
# By default the service manager would stop the unit within moments, and start it again after 10 s.
sleep 5
[ "$(show MainPID)" = "$pid" ] && same=same || same=another
echo "too-large $(show ActiveState) $(show NRestarts) $same"
rm -r $ETC/checks.d

# An agent that hangs is ended by the watchdog and started again.
pid=$(show MainPID)
kill -STOP "$pid"
began=$(cut -d. -f1 /proc/uptime)
other() { now=$(show MainPID); [ "$now" != 0 ] && [ "$now" != "$pid" ] && [ "$(show ActiveState)" = active ]; }
wait_for 240 other
echo "watchdog $(show Result) $(show NRestarts) after $(($(cut -d. -f1 /proc/uptime) - began)) s"
wait_for 120 virtengine-node-agent status --output json >/tmp/status

systemctl stop $UNIT
echo "stopped $(show Result) $(show ExecMainStatus)"
mkdir /tmp/node
cp -a $ETC /tmp/node/etc
cp -a /var/lib/virtengine/node-agent /tmp/node/state
/tmp/release/install-node-agent.sh uninstall --purge
if ls -d /usr/local/bin/virtengine* /etc/virtengine /var/lib/virtengine /etc/systemd/system/virtengine* \
    /etc/systemd/system/*.wants/virtengine* /run/virtengine* 2>/dev/null || systemctl --quiet is-active $TASKS; then
    echo "left behind"
    exit 1
fi
if id virtengine 2>/dev/null; then exit 1; fi
echo "purged"

# The same node once more, for the provider to switch off.
/tmp/release/virtengine-node-agent install
cp -a /tmp/node/etc/. $ETC/
cp -a /tmp/node/state/. /var/lib/virtengine/node-agent/
chown -R virtengine:virtengine $ETC /var/lib/virtengine/node-agent
systemctl enable --quiet --now virtengine-node-helper.socket
systemctl start $UNIT
wait_for 120 virtengine-node-agent status --output json >/tmp/status
echo "waits for the order"
# The host goes down around this.
trap 'echo "going down"; exit 0' TERM
while :; do sleep 1; done
