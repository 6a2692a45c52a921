# shellcheck shell=bash
# Helpers that every script here sources. No side effects on sourcing but `set`.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ROOT

# Versions of the cargo tools that scripts install.
export CARGO_DENY_VERSION=0.20.2 COSMWASM_CHECK_VERSION=3.0.10 STEP_CA_VERSION=0.30.2

# An error's own words say what is wrong; a backtrace of every anyhow error would bury them.
export RUST_LIB_BACKTRACE=${RUST_LIB_BACKTRACE:-0}

# Whatever these scripts start is on this machine: no proxy stands between.
export no_proxy=127.0.0.1,localhost${no_proxy:+,$no_proxy} NO_PROXY=127.0.0.1,localhost${NO_PROXY:+,$NO_PROXY}

# Everything that outlives the clone: tools by version, wasmd by the hash of its go.sum. Safe to delete.
CACHE=${VIRTENGINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/virtengine}

say() { printf '%s\n' "$*" >&2; }
step() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# need TOOL REMEDY: stops with the remedy when the tool is not on PATH.
need() { command -v "$1" >/dev/null 2>&1 || die "$1 is missing. Remedy: $2"; }

# free_port: prints a TCP port of the loopback address that nothing listens on, below the ephemeral range, so that
# no outgoing connection takes it in the meantime.
free_port() {
    local port tries=0
    while ((tries++ < 200)); do
        port=$((20000 + RANDOM % 12000))
        port_free "$port" && {
            echo "$port"
            return
        }
    done
    die "no free TCP port found between 20000 and 32000 on 127.0.0.1"
}

# port_free PORT: true if nothing accepts a connection there.
port_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# port_or_free PREFERRED: the preferred port if it is free, else another one.
port_or_free() { if port_free "$1"; then echo "$1"; else free_port; fi; }

# wait_until SECONDS COMMAND…: polls until the command succeeds; false when the time is over.
wait_until() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.2
    done
}

# stop_pid PIDFILE [SECONDS]: SIGTERM, then SIGKILL once the seconds (default 15) are over; removes the file.
stop_pid() {
    local pid deadline=$((SECONDS + ${2:-15}))
    pid=$(cat "$1" 2>/dev/null) || return 0
    if kill -TERM "$pid" 2>/dev/null; then
        while kill -0 "$pid" 2>/dev/null; do
            ((SECONDS < deadline)) || {
                kill -KILL "$pid" 2>/dev/null || true
                break
            }
            sleep 0.1
        done
    fi
    rm -f "$1"
}

# alive PIDFILE: true if the file names a running process.
alive() { [[ -s $1 ]] && kill -0 "$(cat "$1")" 2>/dev/null; }

# cargo_tool CRATE VERSION: installs one binary crate into the cache and prints its path.
cargo_tool() {
    local crate=$1 version=$2 dir=$CACHE/tools/$1-$2
    if [[ ! -x $dir/bin/$crate ]]; then
        step "installing $crate $version (once, into $dir)"
        # Built fast rather than fast once built: each runs for seconds.
        CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
            CARGO_TARGET_DIR=$CACHE/tools/build-$crate cargo install --quiet --locked --root "$dir" --version "=$version" "$crate" >&2 ||
            die "cargo install $crate $version failed. Remedy: install it by hand and try again"
        rm -rf "$CACHE/tools/build-$crate"
    fi
    echo "$dir/bin/$crate"
}
