#!/bin/sh
# Before the files go, not before an upgrade: .deb says "remove", .rpm 0. Says what tasks have left on this host.
set -e

case ${1:-} in
remove | 0) exec /usr/bin/virtengine-node-agent uninstall --packaged ;;
esac
