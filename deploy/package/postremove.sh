#!/bin/sh
# After the files are gone. `purge` (.deb alone) takes identity, state and logs with it; the node's record on chain stays
# until the provider deregisters it or it runs out.
set -e

if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi

if [ "${1:-}" = purge ]; then
    tasks=/var/lib/virtengine/tasks
    # What tasks hold (machines, users of tenants) is on record here and nowhere else.
    if [ -s $tasks/holdings.json ] && ! tr -d ' \n' <$tasks/holdings.json | grep -qxF '{"holdings":[]}'; then
        echo "$tasks stays: tasks hold something on this host (holdings.json); end it, and remove the directory" >&2
    else
        rm -rf $tasks
    fi
    rm -rf /etc/virtengine/node-agent /var/lib/virtengine/node-agent
    rm -f /etc/virtengine/tasks.yaml /var/log/virtengine/node-agent.log* /run/virtengine-node-agent.rehearsal
    # Another program of ours may still live there.
    for directory in /etc/virtengine /var/lib/virtengine /var/log/virtengine; do
        if [ -d "$directory" ]; then rmdir --ignore-fail-on-non-empty "$directory"; fi
    done
    if [ ! -e /var/lib/virtengine ] && getent passwd virtengine >/dev/null; then userdel virtengine; fi
fi
