# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
# shellcheck shell=bash
#
# What tools/quickstart and tools/test need before they can start: packages
# of the distribution, a Rust toolchain, and the Python environment at .venv.
# Every function does nothing, quickly, where its work is already done.
#
# To be sourced by a script that runs under "set -euo pipefail":
#
#   . "$(dirname "$0")/lib/install.sh"
#   install_packages quickstart python rust  # what bindep.txt lists for them
#   ensure_environment test-requirements.txt # .venv, ready to use
#
# Functions print one line for each step that really does something.

CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
VENV=$CHECKOUT/.venv
MINIMUM_RUST=1.85
MINIMUM_PYTHON=3.11
CARGO_DENY=0.20.2

# Servers of Debian's packages are where plain users do not look.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
# An operator's own package mirror is known to the system, not to uv.
if [ -s /etc/ssl/certs/ca-certificates.crt ]; then
    export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS:-true}
fi

# Images of containers set it. Each process would compile all modules that it
# imports, which takes as long as the rest of its start.
unset PYTHONDONTWRITEBYTECODE

# step TEXT...: one line of progress, with the seconds since the start.
step() {
    printf '[%4ds] %s\n' "$SECONDS" "$*"
}

# die TEXT...: one clear line on standard error, and exit code 1.
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# as_root COMMAND...: run it with root's rights; through sudo if need be.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo --preserve-env=http_proxy,https_proxy,no_proxy -- "$@"
    else
        die "\"$1\" needs root's rights: run as root or install sudo"
    fi
}

# version_at_least HAVE WANTED: true when HAVE is WANTED or newer.
version_at_least() {
    [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]
}

# apt_missing PACKAGE...: print those that are not installed, one a line.
apt_missing() {
    local package status
    for package in "$@"; do
        # dpkg-query fails for an unknown package.
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" \
            2>/dev/null) || status=unknown
        [ "$status" = installed ] || echo "$package"
    done
}

# apt_refresh: bring the package lists up to date, once in a script's life.
apt_refresh() {
    [ -z "${APT_REFRESHED:-}" ] || return 0
    step "apt-get update"
    as_root apt-get update -qq || die "apt-get update failed: see above"
    APT_REFRESHED=yes
}

# Seconds to wait for another apt-get, such as unattended-upgrades after boot.
APT_LOCK_SECONDS=600

# apt_install PACKAGE...: install those that are missing. Servers among them
# are not started: the tests start their own, with their own ports and files.
apt_install() {
    command -v apt-get >/dev/null ||
        die "apt-get not found: this script needs Debian 12 or newer"
    local missing
    mapfile -t missing < <(apt_missing "$@")
    [ ${#missing[@]} -gt 0 ] || return 0
    apt_refresh
    step "apt-get install ${missing[*]}"
    as_root bash -c '
        policy=/usr/sbin/policy-rc.d
        if [ ! -e "$policy" ]; then
            trap "rm -f $policy" EXIT
            printf "#!/bin/sh\nexit 101\n" >"$policy"
            chmod 755 "$policy"
        fi
        said=$(DEBIAN_FRONTEND=noninteractive apt-get install --yes \
            --no-install-recommends -qq -o Dpkg::Use-Pty=0 \
            -o DPkg::Lock::Timeout="$0" "$@" 2>&1) || {
            printf "%s\n" "$said" >&2
            exit 1
        }' "$APT_LOCK_SECONDS" "${missing[@]}" ||
        die "could not install ${missing[*]}: see apt-get's words above"
}

# packages PROFILE...: what bindep.txt lists for them on this system, one a line.
# bindep itself needs a Python environment, and so comes too late.
packages() {
    local ID='' VERSION_ID='' VERSION_CODENAME=''
    # shellcheck source=/dev/null
    . "${OS_RELEASE:-/etc/os-release}"
    awk -v profiles=" $* " \
        -v platforms=" dpkg $ID $ID-$VERSION_ID $ID-$VERSION_CODENAME " '
        function fits(words, kind, known,    count, list, i, word, no, some, ok) {
            count = split(words, list, " ")
            for (i = 1; i <= count; i++) {
                word = list[i]
                no = sub(/^!/, "", word)
                if (sub(/^platform:/, "", word) != (kind == "platform"))
                    continue
                if (no && index(known, " " word " "))
                    return 0
                if (!no) {
                    some = 1
                    ok = ok || index(known, " " word " ") > 0
                }
            }
            return ok || !some
        }
        /^[a-z0-9]/ {
            name = $1
            words = match($0, /\[.*\]/) ? substr($0, RSTART + 1, RLENGTH - 2) : ""
            if (fits(words, "platform", platforms) && fits(words, "profile", profiles))
                print name
        }' "$CHECKOUT/bindep.txt" | sort -u
}

# install_packages PROFILE...: by one call of apt.
install_packages() {
    local wanted
    mapfile -t wanted < <(packages "$@")
    apt_install "${wanted[@]}"
}

# apt_candidate PACKAGE: the version that apt would install, or nothing.
apt_candidate() {
    apt-cache policy "$1" 2>/dev/null |
        sed -n 's/^ *Candidate: \([^(].*\)$/\1/p'
}

# rust_is_ready: true when cargo and rustc are there and new enough.
rust_is_ready() {
    local tool version
    [ ! -d "$HOME/.cargo/bin" ] || [[ :$PATH: = *:$HOME/.cargo/bin:* ]] ||
        PATH=$PATH:$HOME/.cargo/bin
    for tool in cargo rustc; do
        version=$("$tool" --version 2>/dev/null) || return 1
        version_at_least "$(echo "$version" | cut -d ' ' -f 2)" \
            "$MINIMUM_RUST" || return 1
    done
}

# ensure_rust: a Rust toolchain and the C compiler its crates call. Debian 12
# keeps its own rustc at 1.63; the packages made for its browsers are newer.
ensure_rust() {
    if rust_is_ready; then
        install_packages cc
        return
    fi
    install_packages cc rust
    hash -r
    rust_is_ready || die "no Rust $MINIMUM_RUST or newer, and none among" \
        "apt's packages: install it from https://rustup.rs and run again"
}

# ensure_cargo_deny: the checker of crates, in .venv. Without a registry the lint
# stage says that it did not run.
ensure_cargo_deny() {
    ! "$VENV/bin/cargo-deny" --version 2>/dev/null |
        grep -qx "cargo-deny $CARGO_DENY" || return 0
    ensure_rust
    step "cargo-deny $CARGO_DENY"
    cargo install --quiet --locked --root "$VENV" --version "$CARGO_DENY" \
        cargo-deny || step "cargo-deny was not installed: see above"
}

# python_is_ready PYTHON: true when it is new enough and can make a venv.
python_is_ready() {
    "$1" -c "
import ensurepip, sys, venv
sys.exit(sys.version_info < (${MINIMUM_PYTHON/./, }))" 2>/dev/null
}

# find_python: print the Python to make the environment with.
find_python() {
    local candidate
    for candidate in python3 python3.11 python3.12 python3.13 \
        /usr/bin/python3; do
        if python_is_ready "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# digest FILE...: one checksum over the names and contents of files.
digest() {
    (cd "$CHECKOUT" && sha256sum -- "$@") | sha256sum | cut -d ' ' -f 1
}

# is_stamped NAME DIGEST: true when the step was done for just this input.
is_stamped() {
    [ "$(cat "$VENV/.stamp-$1" 2>/dev/null)" = "$2" ]
}

# ensure_venv: an empty environment at .venv, with uv to fill it.
ensure_venv() {
    local python
    if ! "$VENV/bin/python" -c pass 2>/dev/null; then
        if ! python=$(find_python); then
            install_packages python
            python=$(find_python) || die "no Python $MINIMUM_PYTHON or" \
                "newer with its venv module: install one and run again"
        fi
        step "Python environment at ${VENV#"$CHECKOUT"/} ($python)"
        "$python" -m venv --clear "$VENV"
    fi
    if [ ! -x "$VENV/bin/uv" ]; then
        "$VENV/bin/python" -m pip install --quiet \
            --disable-pip-version-check \
            --constraint "$CHECKOUT/constraints.txt" uv
    fi
}

# ensure_requirements FILE...: what the files name, as constraints.txt says.
ensure_requirements() {
    local name wanted file arguments=()
    name=$(printf '%s\n' "$@" | tr -c 'a-z0-9\n' - | tr '\n' _)
    wanted=$(digest "$@" constraints.txt)
    ! is_stamped "$name" "$wanted" || return 0
    step "Python packages of $*"
    for file in "$@"; do
        arguments+=(--requirement "$CHECKOUT/$file")
    done
    "$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" \
        --constraint "$CHECKOUT/constraints.txt" "${arguments[@]}" \
        setuptools setuptools-rust
    echo "$wanted" >"$VENV/.stamp-$name"
}

# package_inputs: the files whose change asks for a new installation.
package_inputs() {
    (cd "$CHECKOUT" &&
        find native \( -path native/target -o -path native/fuzz \) -prune \
            -o -type f -print &&
        ls {,plugins/}{setup.cfg,pyproject.toml}) | LC_ALL=C sort
}

# native_targets PROFILE: the directory that Cargo puts what it built into.
native_targets() {
    echo "$CHECKOUT/native/target/$1"
}

# Seconds between two lines that say how far Cargo is.
COMPILING_SECONDS=20

# say_compiling: read what Cargo says, and say now and then how far it is.
say_compiling() {
    local word crate rest count=0 said=$SECONDS
    while read -r word crate rest; do
        [ "$word" = Compiling ] || continue
        count=$((count + 1))
        if [ $((SECONDS - said)) -ge "$COMPILING_SECONDS" ]; then
            step "compiling crate $count, $crate"
            said=$SECONDS
        fi
    done
}

# build_native PROFILE CRATE...: compile with one of Cargo's profiles. In one
# call, so that what one crate links does not wait for another's compilation.
build_native() {
    local profile=$1 log
    shift
    log=$(native_targets "$profile").log
    mkdir -p "${log%/*}"
    # As an extension of any Python, it is linked with none.
    PYO3_BUILD_EXTENSION_MODULE=1 CARGO_TARGET_DIR=$CHECKOUT/native/target \
        cargo build --locked --color never --profile "$profile" \
        --manifest-path "$CHECKOUT/native/Cargo.toml" \
        "${@/#/--package=}" 2>&1 | tee "$log" | say_compiling || {
        tail -n 50 "$log" >&2
        die "could not compile $*: see Cargo's words above"
    }
}

# put FILE TARGET: replace a file that processes may have open or run.
put() {
    cp "$1" "$2.new"
    mv "$2.new" "$2"
}

# build_editable DIR: wheels of both distributions that point to this checkout.
build_editable() {
    local project
    # What a build of the package left has commands of a former commit.
    rm -rf "$1" "$CHECKOUT"/{,plugins/}*.egg-info
    mkdir -p "$1"
    for project in "$CHECKOUT" "$CHECKOUT/plugins"; do
        "$CHECKOUT/.venv/bin/python" "$CHECKOUT/tools/lib/editable.py" \
            "$project" "$1" >/dev/null
    done
}

# install_editable PROFILE [PROGRAM...]: this checkout in .venv, with the module
# and programs that Cargo has built.
install_editable() {
    local built program wheels=$VENV/.editable
    built=$(native_targets "$1")
    put "$built/lib_native.so" "$CHECKOUT/diffcache_openstack/_native.abi3.so"
    build_editable "$wheels"
    "$VENV/bin/uv" pip install --quiet --python "$VENV/bin/python" \
        --no-deps --reinstall "$wheels"/*.whl
    for program in "${@:2}"; do
        put "$built/$program" "$VENV/bin/$program"
    done
}

# package_digest: changes with what asks for a new installation.
package_digest() {
    local inputs
    mapfile -t inputs < <(package_inputs)
    digest "${inputs[@]}"
}

# package_is_ready STAMP...: true when this checkout is installed as it is now, in
# one of the ways.
package_is_ready() {
    local wanted stamp
    wanted=$(package_digest)
    for stamp in "$@"; do
        ! is_stamped "$stamp" "$wanted" ||
            ! "$VENV/bin/python" -c 'import diffcache_openstack._native' \
                2>/dev/null || return 0
    done
    return 1
}

# stamp_package NAME DIGEST: what was installed replaces what was before.
stamp_package() {
    rm -f "$VENV"/.stamp-{release,quick,module,wheel}
    echo "$2" >"$VENV/.stamp-$1"
}

# The profile of Cargo, see native/Cargo.toml, that native parts are built with;
# "quick" does not build what was built as "release" again.
NATIVE_PROFILE=${DIFFCACHE_NATIVE_PROFILE:-release}

# ensure_package: this checkout, editable, with its native parts.
ensure_package() {
    ! package_is_ready release "$NATIVE_PROFILE" || return 0
    ensure_rust
    step "diffcache_openstack, its native module and daemons ($NATIVE_PROFILE)"
    build_native "$NATIVE_PROFILE" \
        diffcache-py diffcache-daemon diffcache-ssdcached
    install_editable "$NATIVE_PROFILE" diffcached diffcache-ssdcached
    stamp_package "$NATIVE_PROFILE" "$(package_digest)"
}

# ensure_dashboard: .venv-dashboard, with Horizon, which the services do not
# need. The native module is the one that was built in place.
ensure_dashboard() {
    local lock VENV=$CHECKOUT/.venv-dashboard
    exec {lock}<"$CHECKOUT"
    flock "$lock"
    ensure_venv
    ensure_requirements requirements.txt plugins/requirements.txt \
        plugins/dashboard-requirements.txt \
        tests/unit/dashboard/requirements.txt
    exec {lock}<&-
}

# ensure_environment [FILE...]: .venv with this package, its requirements and
# those of the files named. Two scripts at once wait for each other.
ensure_environment() {
    local lock
    exec {lock}<"$CHECKOUT"
    flock "$lock"
    ensure_venv
    ensure_requirements requirements.txt plugins/requirements.txt "$@"
    ensure_package
    exec {lock}<&-
}
