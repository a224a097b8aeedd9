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
# shellcheck shell=bash
#
# Follow the page of Debian 13's installation: what it says to type is read from the
# page itself. To be sourced by tools/debian-package, with bare.sh and booted.sh.

PAGE=doc/source/install/debian-13.rst
# The machines of the page, with the addresses that it gives them.
CONTROLLER=ctl-1 CONTROLLER_ADDRESS=10.0.0.2
COMPUTE=edge-1 COMPUTE_ADDRESS=10.1.0.7
declare -A ROLES=([$CONTROLLER]=controller [$COMPUTE]=compute)
# What each needs to be booted, to be reached by the other, and for this trial.
BOOTED=(ca-certificates dbus iproute2 procps systemd systemd-sysv)

# make_machines SUITE [MIRROR]: two Debians with OpenStack's packages and what the
# page's commands take from the archive, which no machine reaches later.
make_machines() {
    local name root
    bare_root "$WORK/root" "$1" "${2:-}" "${BOOTED[@]}"
    configure_root "$WORK/root"
    for name in "${!ROLES[@]}"; do
        root=$WORK/$name
        step "OpenStack's packages for $name"
        cp -a "$WORK/root" "$root"
        cp "$CHECKOUT/tools/lib/debian-cloud" "$root/srv/"
        in_root "$root" /srv/debian-cloud packages "${ROLES[$name]}" \
            >"$root.log" 2>&1 || {
            tail -n 50 "$root.log" >&2
            die "the packages of OpenStack cannot be installed in $root"
        }
        prepare_machine "$name"
    done
    share_ssh
}

# prepare_machine NAME: its name, the packages of $PACKAGES, and what they need.
prepare_machine() {
    local root=$WORK/$1
    echo "$1" >"$root/etc/hostname"
    printf '%s\n' '127.0.0.1 localhost' "$CONTROLLER_ADDRESS $CONTROLLER" \
        "$COMPUTE_ADDRESS $COMPUTE" >"$root/etc/hosts"
    # The page leaves the answer to apt's question to the reader.
    echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/95assume"
    mkdir -p "$root/root/dist-13"
    cp "$PACKAGES"/*.deb "$root/root/dist-13/"
    in_root "$root" bash -c 'apt-get update -qq
        apt-get install -qq --download-only ~root/dist-13/*.deb' \
        >>"$root.log" 2>&1
    echo "Installed: $(in_root "$root" dpkg-query --show --showformat \
        '${Package} ${Version}, ' nova-compute nova-api keystone glance-api \
        2>/dev/null || true)"
}

# share_ssh: the administrator of the controller may log in to the host.
share_ssh() {
    local from=$WORK/$CONTROLLER/root/.ssh to=$WORK/$COMPUTE/root/.ssh
    mkdir -p "$from" "$to"
    chmod 700 "$from" "$to"
    in_root "$WORK/$CONTROLLER" bash -c \
        'ssh-keygen -q -t ed25519 -N "" -f ~root/.ssh/id_ed25519'
    cp "$from/id_ed25519.pub" "$to/authorized_keys"
    echo 'StrictHostKeyChecking accept-new' >"$from/config"
}

# make_guest FILE: an image that boots, and says so on its serial console.
make_guest() {
    install_packages openstack
    PYTHONPATH=$CHECKOUT/tools/openstack.d python3 -c '
import pathlib, sys
from onemachine import guests
folder, family = pathlib.Path(sys.argv[1]), guests.FAMILY[:1]
made = guests.Guests(folder, print, family=family).ensure()
print(*made.values())' "$WORK/guest"
    qemu-img convert -c -O qcow2 "$WORK/guest/guest-base.raw" "$1"
}

# follow_block MACHINE SECTION/NUMBER [SED...]: type what a block of the page has, as
# root in the home directory; the seconds that it took are printed.
follow_block() {
    local name=$1 file=$WORK/page/$2 start=$SECONDS
    step "on $name, $2:"
    sed "${@:3}" -e '' "$file" | tee "$WORK/$name/root/typed" | sed 's/^/    /'
    booted "$name" bash -euc 'cd; [ ! -e admin-openrc ] || . ./admin-openrc
        . ./typed' || {
        show_journals
        die "the page does not lead further at $2 on $name"
    }
    step "$2 took $((SECONDS - start)) s"
}

show_journals() {
    local name
    for name in "${!ROLES[@]}"; do
        booted "$name" journalctl --no-pager --lines 200 >&2 || true
    done
}

# await WHAT COMMAND...: until it is so.
await() {
    local end
    end=$((SECONDS + 300))
    until "${@:2}" >"$WORK/await" 2>&1; do
        [ "$SECONDS" -lt "$end" ] || {
            cat "$WORK/await" >&2
            show_journals
            die "waited in vain for $1"
        }
        sleep 2
    done
    step "$1"
}

# openstack_says PATTERN WORD...: a command's answer has a line like it.
openstack_says() {
    booted "$CONTROLLER" bash -c '. ~root/admin-openrc && exec openstack "$@"' \
        - "${@:2}" | tee "$WORK/said" | grep -Eq "$1"
}

# doctor MACHINE ROLE: no check fails.
doctor() {
    booted "$1" runuser -u diffcache -- diffcache-manage doctor --role "$2" \
        --fit-width || {
        show_journals
        die "doctor --role $2 fails on $1"
    }
}

# has_started: the guest of the page's server has said so.
has_started() {
    grep -q DIFFCACHE-GUEST-READY \
        "$WORK/$COMPUTE"/var/lib/nova/instances/*/console.log
}

# start_cloud: what an operator has before.
start_cloud() {
    boot "$CONTROLLER" "$WORK/$CONTROLLER"
    boot "$COMPUTE" "$WORK/$COMPUTE"
    connect "$CONTROLLER" "$CONTROLLER_ADDRESS/8" \
        "$COMPUTE" "$COMPUTE_ADDRESS/8"
    step "Debian's own OpenStack"
    booted "$CONTROLLER" /srv/debian-cloud controller "$CONTROLLER_ADDRESS"
    booted "$COMPUTE" /srv/debian-cloud compute "$COMPUTE_ADDRESS" \
        "$CONTROLLER_ADDRESS"
    await 'nova-compute is up' openstack_says 'nova-compute.*\bup\b' \
        compute service list
    booted "$CONTROLLER" /srv/debian-cloud discover
}

follow_controller() {
    local number
    for number in 1 2 3 4; do
        follow_block "$CONTROLLER" "the-controller-and-the-repository/$number.sh"
    done
    step "on $CONTROLLER, options of Glance"
    sed 's/GLANCE_USER:PASSWORD/openstack:secret/' \
        "$WORK/page/the-controller-and-the-repository/5.conf" |
        booted "$CONTROLLER" crudini --merge /etc/glance/glance-api.conf
    booted "$CONTROLLER" systemctl restart glance-api
}

follow_host() {
    follow_block "$CONTROLLER" a-compute-host/1.sh
    follow_block "$COMPUTE" a-compute-host/2.sh
    sed 's/virt_type = kvm/virt_type = qemu/' "$WORK/page/a-compute-host/3.conf" \
        >"$WORK/$COMPUTE/etc/nova/nova-compute.conf"
    follow_block "$COMPUTE" a-compute-host/4.sh
}

follow_verify() {
    follow_block "$COMPUTE" verify/1.sh
    doctor "$CONTROLLER" controller
    doctor "$CONTROLLER" repository
    await 'the host is known' openstack_says "$COMPUTE.* up" \
        image cache host list
    follow_block "$CONTROLLER" verify/2.sh
    follow_block "$CONTROLLER" verify/3.sh
    await 'the repository has the image' openstack_says 'debian-13.*active' \
        image cache image list
    # There is no network for guests.
    follow_block "$CONTROLLER" verify/4.sh -e 's/--network NET/--nic none/'
    await 'the server is active' openstack_says 'check-1.*ACTIVE' server list
    await 'its guest has started' has_started
    await 'the agent delivered its image' openstack_says repository \
        image cache request list --limit 1
    cat "$WORK/said"
}

follow() {
    local name
    PACKAGES=$(realpath "$1")
    install_packages debian
    in_temporary debian-package
    trap 'for name in "${!ROLES[@]}"; do
            cut_power "$name" 2>/dev/null || true
        done
        rm -rf --one-file-system "$WORK"' EXIT
    python3 "$CHECKOUT/tools/lib/page_blocks.py" "$CHECKOUT/$PAGE" "$WORK/page"
    make_machines "$2" "${3:-}"
    make_guest "$WORK/$CONTROLLER/root/debian-13.qcow2"
    start_cloud
    step "following $PAGE"
    follow_controller
    follow_host
    follow_verify
    step 'the page was followed to its end'
}
