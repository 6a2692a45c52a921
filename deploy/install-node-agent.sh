#!/bin/sh
# Installs the node agent without a package manager, on Linux (systemd) and on FreeBSD and DragonFlyBSD (rc.d).
#
#   deploy/install-node-agent.sh [install] [--binary FILE] [--root DIR]   installs or upgrades; configuration and keys stay
#   deploy/install-node-agent.sh uninstall [--purge] [--root DIR]         takes the program away; --purge also identity and state
#
#   --binary FILE   the program; default: beside this script, else target/release of this checkout
#   --root DIR      installs into the tree below DIR (an image); the user must exist there, nothing is started
#
# Exit codes: 0 done, 1 failed, 2 wrong usage.
set -eu

HERE=$(cd "$(dirname "$0")" && pwd)
USER_NAME=virtengine
PROGRAM=virtengine-node-agent

say() { printf '%s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}
wrong() {
    printf 'error: %s Remedy: %s --help\n' "$*" "$0" >&2
    exit 2
}
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p;}' "$0"; }

verb=install binary='' root='' purge=false
case ${1:-} in
install | uninstall)
    verb=$1
    shift
    ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
    --binary | --root)
        [ $# -ge 2 ] || wrong "$1 needs a value."
        if [ "$1" = --binary ]; then binary=$2; else root=${2%/}; fi
        shift
        ;;
    --purge) purge=true ;;
    -h | --help)
        usage
        exit
        ;;
    *) wrong "unknown argument $1." ;;
    esac
    shift
done
[ "$purge" = false ] || [ "$verb" = uninstall ] || wrong "--purge goes with uninstall."
[ "$(id -u)" = 0 ] || die "this needs root. Remedy: sudo $0"

case $(uname -s) in
Linux) os=linux etc=/etc/virtengine/node-agent ;;
FreeBSD | DragonFly) os=bsd etc=/usr/local/etc/virtengine/node-agent ;;
*) die "$(uname -s) is not supported. Remedy: Linux, FreeBSD or DragonFlyBSD" ;;
esac
state=/var/lib/virtengine/node-agent logs=/var/log/virtengine
unit=/etc/systemd/system/$PROGRAM.service rc=/usr/local/etc/rc.d/virtengine_node_agent

# running_systemd: true where the service can be managed now.
running_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

# beside NAME PLACE: a file of the release archive, or of the checkout.
beside() {
    if [ -f "$HERE/$1" ]; then echo "$HERE/$1"; else echo "$HERE/$2"; fi
}

find_binary() {
    if [ -n "$binary" ]; then
        [ -f "$binary" ] || die "--binary $binary: there is no such file"
        return
    fi
    for binary in "$HERE/$PROGRAM" "$HERE/../target/release/$PROGRAM"; do
        [ ! -f "$binary" ] || return 0
    done
    die "no program found beside this script or in target/release. Remedy: --binary FILE, or cargo build --release --bin $PROGRAM"
}

make_user() {
    [ -z "$root" ] || return 0
    if [ $os = bsd ]; then
        pw usershow $USER_NAME >/dev/null 2>&1 || pw useradd $USER_NAME -d /var/lib/virtengine -s /usr/sbin/nologin -c "VirtEngine"
        return
    fi
    getent group $USER_NAME >/dev/null || groupadd --system $USER_NAME
    getent passwd $USER_NAME >/dev/null ||
        useradd --system --gid $USER_NAME --home-dir /var/lib/virtengine --no-create-home --shell /usr/sbin/nologin $USER_NAME
    # The journal's messages of services, and a key that a TPM seals.
    for group in systemd-journal tss; do
        if getent group $group >/dev/null; then usermod --append --groups $group $USER_NAME; fi
    done
    slurm_rights
}

# slurm_rights: the agent drains its node, where Slurm keeps accounts; doctor says what to do where it does not.
slurm_rights() {
    command -v sacctmgr >/dev/null 2>&1 || return 0
    level=$(timeout 5 sacctmgr --noheader --parsable2 show user name=$USER_NAME format=adminlevel 2>/dev/null) || return 0
    case $level in
    Operator | Administrator) return 0 ;;
    '') timeout 10 sacctmgr --immediate --quiet add user $USER_NAME account=root adminlevel=operator >/dev/null 2>&1 ;;
    *) timeout 10 sacctmgr --immediate --quiet modify user name=$USER_NAME set adminlevel=operator >/dev/null 2>&1 ;;
    esac || say "$USER_NAME is no operator in Slurm yet. Remedy: sacctmgr add user $USER_NAME account=root adminlevel=operator"
}

# owned MODE DIRECTORY…: directories of the service's user; in an image its numbers may differ, so root's.
owned() {
    mode=$1
    shift
    for directory; do
        if [ -z "$root" ]; then
            install -d -o $USER_NAME -g $USER_NAME -m "$mode" "$directory"
        else
            install -d -m "$mode" "$root$directory"
        fi
    done
}

# keep MODE SOURCE TARGET: a configuration file, unless there is one.
keep() {
    [ ! -e "$root$3" ] || return 0
    install -m "$1" "$2" "$root$3"
    if [ -z "$root" ]; then chown $USER_NAME:$USER_NAME "$3"; fi
}

install_agent() {
    find_binary
    make_user
    install -d -m 0755 "$root/usr/local/bin" "$root${etc%/*}" "$root/var/lib/virtengine"
    owned 0750 "$etc" "$logs"
    owned 0700 "$etc/keys" "$state"
    # A new file and a rename: the running program keeps its own, and nobody meets half of one.
    install -m 0755 "$binary" "$root/usr/local/bin/.$PROGRAM.new"
    mv -f "$root/usr/local/bin/.$PROGRAM.new" "$root/usr/local/bin/$PROGRAM"
    keep 0640 "$(beside config.yaml package/config.yaml)" "$etc/config.yaml"
    keep 0600 "$(beside environment package/environment)" "$etc/environment"
    if [ $os = bsd ]; then
        install -d -m 0755 "$root${rc%/*}"
        install -m 0755 "$(beside virtengine_node_agent rc.d/virtengine_node_agent)" "$root$rc"
        say "installed. Next: edit $etc/config.yaml; $PROGRAM keygen --output-dir $etc/keys; sysrc virtengine_node_agent_enable=YES; service virtengine_node_agent start"
        return
    fi
    install -d -m 0755 "$root${unit%/*}"
    install -m 0644 "$(beside $PROGRAM.service systemd/$PROGRAM.service)" "$root$unit"
    if running_systemd; then
        systemctl daemon-reload
        systemctl try-restart $PROGRAM.service
    fi
    say "installed. Next: edit $etc/config.yaml; $PROGRAM keygen --output-dir $etc/keys; systemctl enable --now $PROGRAM"
}

uninstall_agent() {
    if [ $os = bsd ]; then
        [ -n "$root" ] || [ ! -x "$rc" ] || service virtengine_node_agent onestop || true
    elif running_systemd && [ -e "$unit" ]; then
        systemctl disable --now $PROGRAM.service
    fi
    rm -f "$root/usr/local/bin/$PROGRAM" "$root$unit" "$root$rc"
    if running_systemd; then systemctl daemon-reload; fi
    if [ $purge = false ]; then
        say "uninstalled; configuration, keys and state stay in $etc and $state. Remedy, if they shall go: $0 uninstall --purge"
        return
    fi
    rm -rf "$root$etc" "$root$state"
    rm -f "$root$logs"/node-agent.log*
    for directory in "${etc%/*}" "${state%/*}" "$logs"; do
        if [ -d "$root$directory" ]; then rmdir "$root$directory" 2>/dev/null || say "$root$directory stays: it is not empty"; fi
    done
    if [ -z "$root" ] && [ ! -e /var/lib/virtengine ]; then
        if [ $os = bsd ]; then pw userdel $USER_NAME || true; else userdel $USER_NAME || true; fi
    fi
    say "uninstalled and purged; the node's record on chain stays until the provider deregisters it"
}

"${verb}_agent"
