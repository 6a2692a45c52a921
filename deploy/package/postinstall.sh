#!/bin/sh
# After unpacking, first installation or upgrade, .deb ("configure") and .rpm (1 or 2): the user, its directories, the unit.
set -e

case ${1:-} in
configure | 1 | 2) ;;
*) exit 0 ;;
esac

getent group virtengine >/dev/null || groupadd --system virtengine
getent passwd virtengine >/dev/null ||
    useradd --system --gid virtengine --home-dir /var/lib/virtengine --no-create-home --shell /usr/sbin/nologin virtengine
# The journal's kernel messages: machine checks, I/O errors, Xids of before the agent started.
if getent group systemd-journal >/dev/null; then usermod --append --groups systemd-journal virtengine; fi

install -d -m 0755 /etc/virtengine /var/lib/virtengine
install -d -o virtengine -g virtengine -m 0750 /etc/virtengine/node-agent
install -d -o virtengine -g virtengine -m 0700 /etc/virtengine/node-agent/keys /var/lib/virtengine/node-agent
install -d -o virtengine -g virtengine -m 0750 /var/log/virtengine
chown virtengine:virtengine /etc/virtengine/node-agent/config.yaml

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # An upgrade goes on with the new program; a first installation is started by whoever has configured it.
    systemctl try-restart virtengine-node-agent.service
fi
