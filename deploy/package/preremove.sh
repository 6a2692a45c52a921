#!/bin/sh
# Before the files go, not before an upgrade: .deb says "remove", .rpm 0.
set -e

case ${1:-} in
remove | 0)
    if [ -d /run/systemd/system ]; then systemctl disable --now virtengine-node-agent.service; fi
    ;;
esac
