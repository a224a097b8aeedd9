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
# What tools/quickstart can know before it installs anything: all that stands
# against a run is printed at once, instead of one fault every ten minutes. To be
# sourced after install.sh; STATE is the directory that is filled.

# What a run needs; the disk's share is less what an earlier run left in STATE.
NEEDED_DISK_MB=11000
NEEDED_MEMORY_MB=2500

PROBLEMS=()

# problem TEXT...: remember a reason why a run cannot succeed.
problem() {
    PROBLEMS+=("$*")
}

# system NAME: a variable of os-release.
system() {
    # shellcheck source=/dev/null
    (. "${OS_RELEASE:-/etc/os-release}" && echo "${!1:-}")
}

# offered_releases: code names of the Debians that apt has from a network.
offered_releases() {
    { apt-get indextargets --format '$(CODENAME) $(REPO_URI)' \
        'Created-By: Packages' 'Component: main' 'Label: Debian' || true; } |
        awk '$2 ~ "^https?:" && $1 !~ "-" { print $1 }'
}

# choose_release: the Debian of the images, in RELEASE: that of this machine, or
# else one that its sources offer.
choose_release() {
    local offered own
    own=$(system VERSION_CODENAME)
    offered=$(offered_releases)
    # An apt that was never updated knows its sources' addresses alone.
    if [ -z "$offered" ]; then
        apt_refresh
        offered=$(offered_releases)
    fi
    for RELEASE in "$own" trixie bookworm; do
        ! grep -qx "$RELEASE" <<<"$offered" || return 0
    done
    RELEASE=''
    problem "apt has no network source of Debian (main), which the images are" \
        "built from: add one to /etc/apt/sources.list"
}

check_root() {
    if [ "$(id -u)" -eq 0 ]; then
        return
    elif ! command -v sudo >/dev/null; then
        problem "needs root's rights: run as root or install sudo"
    elif ! sudo --validate; then
        problem "sudo does not let $(id -un) run commands"
    fi
}

check_machine() {
    [ "$(uname -m)" = x86_64 ] ||
        problem "the images are for x86-64, and this is $(uname -m)"
    local memory
    memory=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    [ "$memory" -ge "$NEEDED_MEMORY_MB" ] ||
        problem "$memory MB of memory are free, $NEEDED_MEMORY_MB are needed"
}

check_disk() {
    local free used
    free=$(df --output=avail --block-size=1M "$STATE" | tail -n 1)
    used=$(du --summarize --block-size=1M "$STATE" | cut -f 1)
    [ $((free + used)) -ge "$NEEDED_DISK_MB" ] || problem "$((free)) MB are" \
        "free in $STATE, $((NEEDED_DISK_MB - used)) are needed: name another" \
        "directory with --state"
}

# check_mounts: images are mounted by loop devices, in a namespace of their own.
check_mounts() {
    local why
    why=$(as_root unshare --mount --propagation private bash -euc '
        file=$(mktemp --tmpdir="$1" .probe.XXXXXX)
        trap "rm -f $file" EXIT
        truncate -s 1M "$file"
        losetup --detach "$(losetup --find --show "$file")"
        mount -t tmpfs tmpfs /mnt' check_mounts "$STATE" 2>&1) ||
        problem "cannot mount images (${why##*$'\n'}): the machine, or its" \
            "container, has to allow loop devices and mounts"
}

check_python() {
    ! command -v python3 >/dev/null ||
        python3 -c "
import sys
sys.exit(sys.version_info < (${MINIMUM_PYTHON/./, }))" ||
        [ -n "$(find_python || true)" ] ||
        problem "$(python3 --version) is too old: $MINIMUM_PYTHON is needed"
}

# check_rust: whether apt has a Rust that is new enough, if one is needed.
check_rust() {
    local name version
    ! rust_is_ready || return 0
    name=$(packages rust | grep '^cargo')
    if [ -z "$(apt_candidate "$name")" ]; then
        apt_refresh
    fi
    version=$(apt_candidate "$name")
    # Debian numbers its cargo 0.66 for Rust 1.63 and so on: too old.
    version_at_least "${version:-0}" "$MINIMUM_RUST" ||
        problem "no Rust $MINIMUM_RUST or newer, and apt's $name is" \
            "${version:-not there}: install it from https://rustup.rs, or" \
            "name a directory with wheels by --wheels"
}

# say_machine: one line that explains the times that follow.
say_machine() {
    local name memory kvm='without KVM'
    name=$(system PRETTY_NAME)
    memory=$(awk '/^MemTotal:/ { print int($2 / 1e6 + 0.5) }' /proc/meminfo)
    [ ! -w /dev/kvm ] || kvm='with KVM'
    step "$name, $(nproc) processors (load $(cut -d ' ' -f 1 /proc/loadavg))," \
        "$memory GB of memory, $kvm; images of Debian $RELEASE"
}

# stop_at_problems: exit with all of them, if there are any.
stop_at_problems() {
    local each
    [ ${#PROBLEMS[@]} -gt 0 ] || return 0
    for each in "${PROBLEMS[@]}"; do
        printf '%s: %s\n' "$(basename "$0")" "$each" >&2
    done
    exit 1
}

# preflight: exit unless a run can succeed. WHEELS is not empty where nothing is
# compiled. What needs neither a network nor root's rights comes first.
preflight() {
    command -v apt-get >/dev/null ||
        die "apt-get not found: this script needs Debian 12 or newer"
    check_machine
    check_disk
    check_python
    check_root
    stop_at_problems
    check_mounts
    choose_release
    [ ${#WHEELS[@]} -gt 0 ] || check_rust
    stop_at_problems
    say_machine
}
