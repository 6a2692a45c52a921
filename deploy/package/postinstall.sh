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
# The journal's messages of services, and a key that a TPM seals.
for group in systemd-journal tss; do
    if getent group $group >/dev/null; then usermod --append --groups $group virtengine; fi
done
# The agent drains its node, where Slurm keeps accounts and answers; `doctor` says what to do where it does not.
if command -v sacctmgr >/dev/null && level=$(timeout 5 sacctmgr --noheader --parsable2 show user name=virtengine format=adminlevel 2>/dev/null); then
    case $level in
    Operator | Administrator) ;;
    '') timeout 10 sacctmgr --immediate --quiet add user virtengine account=root adminlevel=operator >/dev/null 2>&1 || true ;;
    *) timeout 10 sacctmgr --immediate --quiet modify user name=virtengine set adminlevel=operator >/dev/null 2>&1 || true ;;
    esac
fi

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
