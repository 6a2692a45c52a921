#!/bin/sh
# After unpacking, first installation or upgrade, .deb ("configure") and .rpm (1 or 2): user, rights, directories, and a
# restart of what runs. The program knows them, so that packages and its own `install` cannot differ.
set -e

case ${1:-} in
configure | 1 | 2) exec /usr/bin/virtengine-node-agent install --packaged ;;
esac
