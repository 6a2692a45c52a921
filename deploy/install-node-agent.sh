#!/bin/sh
# Installs the node agent without a package manager, on Linux (systemd) and on FreeBSD and DragonFlyBSD (rc.d): finds the
# program and has it install itself.
#
#   deploy/install-node-agent.sh [install] [--binary FILE] [--root DIR] [--dry-run]    installs or upgrades; configuration and keys stay
#   deploy/install-node-agent.sh uninstall [--purge] [--root DIR] [--dry-run]          takes the program away; --purge also identity and state
#
#   --binary FILE   the program; default: beside this script, else target/release of this checkout, else the installed one
#   --root DIR      a tree (an image) instead of this host; nothing in it is started
#   --dry-run       prints what would be done
#
# Exit codes: 0 done, 1 failed, 2 wrong usage.
set -eu

HERE=$(cd "$(dirname "$0")" && pwd)
PROGRAM=virtengine-node-agent

usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"; }

verb=install binary=''
case ${1:-} in
install | uninstall)
    verb=$1
    shift
    ;;
-h | --help)
    usage
    exit
    ;;
esac
# The program understands the other arguments; of these the first `--binary` says which program that is.
previous=''
for argument; do
    case $previous in --binary) binary=$argument ;; esac
    case $argument in --binary=*) binary=${argument#--binary=} ;; esac
    previous=$argument
done
for candidate in "$binary" "$HERE/$PROGRAM" "$HERE/../target/release/$PROGRAM" "/usr/local/bin/$PROGRAM"; do
    if [ -n "$candidate" ] && [ -f "$candidate" ]; then
        exec "$candidate" "$verb" "$@"
    fi
    if [ -n "$binary" ]; then
        printf 'error: --binary %s: there is no such file\n' "$binary" >&2
        exit 2
    fi
done
printf 'error: no program beside this script or in target/release. Remedy: --binary FILE, or cargo build --release --bin %s\n' $PROGRAM >&2
exit 1
