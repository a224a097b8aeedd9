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
# Bare Debians, to try in them what is said of this tree. To be sourced after
# install.sh; needs root.
#
#   bare_root ROOT SUITE [MIRROR [PACKAGE...]]  # made anew
#   configure_root ROOT                         # reaches what this machine does
#   in_root ROOT COMMAND...
#   remove_root ROOT

# How pip, uv, cargo and others reach what they download.
DOWNLOADS='^(PIP_|UV_|CARGO_(HTTP|NET|REGISTR)|RUSTUP_|SSL_CERT_'
DOWNLOADS+='|(REQUESTS|CURL)_CA_BUNDLE=|GIT_SSL_'
DOWNLOADS+='|(https?|all|no)_proxy=|(HTTPS?|ALL|NO)_PROXY=)'

# archive_sources SUITE: the lines of sources.list for a release, from the
# archives that this machine's apt has Debian from.
archive_sources() {
    local name uri
    while read -r name uri; do
        # The names of a release's parts differ in its code name alone.
        case $name in
            *-updates) name=$1-updates ;;
            *-security) name=$1-security ;;
            *-*) continue ;;
            *) name=$1 ;;
        esac
        echo "deb $uri $name main"
    done < <(apt-get indextargets \
        --format '$(CODENAME) $(REPO_URI) $(LABEL)' \
        'Created-By: Packages' 'Component: main' |
        awk '$3 ~ /^Debian/ { print $1, $2 }') | sort -u
}

# bare_root ROOT SUITE [MIRROR [PACKAGE...]]: a minimal Debian in the directory
# ROOT, with packages besides.
bare_root() {
    local root=$1 suite=$2 mirror=${3:-} sources
    shift $(($# < 3 ? $# : 3))
    [ "$(id -u)" -eq 0 ] || die 'run it as root: it needs chroot'
    install_packages bare
    sources=${mirror:+deb $mirror $suite main}
    [ -n "$sources" ] || sources=$(archive_sources "$suite")
    if [ -z "$sources" ]; then
        apt_refresh
        sources=$(archive_sources "$suite")
    fi
    [ -n "$sources" ] ||
        die 'apt knows no archive of Debian: name it as MIRROR'
    step "mmdebstrap $suite"
    mkdir -p "$root"
    # An empty list of packages is an error of usage.
    mmdebstrap --quiet --mode=root --variant=minbase \
        ${1:+--include="$(IFS=,; echo "$*")"} \
        "$suite" "$root" - <<<"$sources" >"$root.log" 2>&1 || {
        tail "$root.log" >&2
        die "mmdebstrap could not make a Debian $suite: see above"
    }
}

# configure_root ROOT: what this machine has of its own to reach the archive and
# the registries of Python and Rust packages.
configure_root() {
    local root=$1 file
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    for file in /etc/apt/auth.conf /etc/apt/auth.conf.d /etc/pip.conf \
        /etc/uv/uv.toml ~/.config/pip/pip.conf ~/.config/uv/uv.toml \
        ~/.cargo/config.toml; do
        if [ -e "$file" ]; then
            # Its home is root's, too.
            mkdir -p "$root$(dirname "${file/#$HOME//root}")"
            cp -R "$file" "$root$(dirname "${file/#$HOME//root}")"
        fi
    done
    apt-config dump Acquire::http Acquire::https |
        grep -i proxy >"$root/etc/apt/apt.conf.d/95of-this-machine" || true
    # Authorities that stay when ca-certificates is installed.
    if [ -s /etc/ssl/certs/ca-certificates.crt ]; then
        mkdir -p "$root/usr/local/share/ca-certificates" "$root/etc/ssl/certs"
        cp /etc/ssl/certs/ca-certificates.crt \
            "$root/usr/local/share/ca-certificates/of-this-machine.crt"
        cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    fi
}

# in_root ROOT COMMAND...: run it there with a clean environment, but for how
# packages are downloaded. /proc shows its own processes, and ends them with it;
# devices are this machine's.
in_root() {
    local root=$1 setting settings=()
    while IFS= read -r setting; do
        settings+=("$setting")
    done < <(env | grep -E "$DOWNLOADS" || true)
    # A root is a mount of its own, as images are built in a private namespace.
    env --ignore-environment "${settings[@]}" HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        unshare --mount --propagation private --pid --fork --kill-child bash -euc '
            mount --bind "$0" "$0"
            mount -t proc proc "$0/proc"
            mount --rbind /sys "$0/sys"
            mount --rbind /dev "$0/dev"
            mount -t tmpfs -o mode=755 tmpfs "$0/run"
            exec chroot "$0" "$@"' "$root" "${@:2}"
}

# remove_root ROOT: nothing is mounted there outside of a command's namespace.
remove_root() {
    rm -rf --one-file-system "$1" "$1.log"
}
