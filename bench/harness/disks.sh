# shellcheck shell=bash
# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
#
# Shared by the programs here that build disks from Debian's packages (bash).
# They need root, mmdebstrap, mke2fs and loop mounts. Before a disk is mounted
# the caller sets $mnt to an empty folder.

suite=bookworm

say() { echo "[$(date +%T)] $*"; }

# Print where this machine has the packages of a codename from.
repository() {  # CODENAME
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
        "Codename: $1" | head -n 1
}

# Print the suite and its updates as lines of sources.list.
all_sources() {
    local codename
    for codename in "$suite" "$suite-updates" "$suite-security"; do
        echo "deb $(repository "$codename") $codename main"
    done
}

# Lay the files of an archive out on a new raw disk, in the archive's order.
lay_out() {  # ARCHIVE DISK SIZE
    : "${mnt:?}"
    rm -f "$2"
    truncate -s "$3" "$2"
    mke2fs -q -t ext4 -L root "$2"
    mount -o loop "$2" "$mnt"
    tar -C "$mnt" --xattrs --numeric-owner -xf "$1"
    umount "$mnt"
}

# Mount a disk so that packages can be installed into it, without starting
# their services.
open_disk() {  # DISK
    mount -o loop "$1" "$mnt"
    mount --bind /proc "$mnt/proc"
    cp --remove-destination /etc/resolv.conf "$mnt/etc/resolv.conf"
    printf '#!/bin/sh\nexit 101\n' >"$mnt/usr/sbin/policy-rc.d"
    chmod 755 "$mnt/usr/sbin/policy-rc.d"
    cp /etc/apt/apt.conf.d/*proxy* "$mnt/etc/apt/apt.conf.d/" 2>/dev/null ||
        true
}

# Run shell commands in the mounted disk, their output appended to a file.
inside() {  # LOG COMMANDS [ARGUMENT...]
    local log=$1 commands=$2
    shift 2
    DEBIAN_FRONTEND=noninteractive LC_ALL=C chroot "$mnt" /bin/sh -e -c \
        "install() { apt-get install -qq -y --no-install-recommends \"\$@\"; }
        $commands" inside "$@" >>"$log" 2>&1
}

close_disk() {
    rm -f "$mnt/usr/sbin/policy-rc.d"
    umount -R "$mnt"
}
