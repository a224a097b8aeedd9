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
# Debians that run, each with systemd and a network of its own. To be sourced after
# install.sh; needs root, and what bindep.txt lists for "debian".
#
#   boot NAME ROOT                          # and wait until systemd has started all
#   booted NAME COMMAND...                  # run a command there
#   connect NAME ADDRESS NAME ADDRESS       # one network of two machines
#   cut_power NAME                          # end all of its processes at once

# The processes of machines, by name: systemd-nspawn, and its first child.
declare -A NSPAWN=() LEADER=()
BOOT_SECONDS=300

# boot NAME ROOT: but for loopback, its network is empty.
boot() {
    local name=$1 root=$2 start=$SECONDS state
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 setsid systemd-nspawn --quiet --boot \
        --machine "$name" --directory "$root" --register=no --keep-unit \
        --private-network --bind=/dev/fuse --console=passive \
        --kill-signal=SIGRTMIN+3 </dev/null >>"$root.console" 2>&1 &
    NSPAWN[$name]=$!
    while :; do
        LEADER[$name]=$(pgrep --parent "${NSPAWN[$name]}" --full . |
            head -n 1 || true)
        state=
        [ -z "${LEADER[$name]}" ] ||
            state=$(booted "$name" systemctl is-system-running) || true
        case $state in running | degraded) break ;; esac
        [ $((SECONDS - start)) -lt "$BOOT_SECONDS" ] ||
            die "systemd did not start in $root"
        sleep 1
    done
    step "systemd runs on $name: $state"
}

# booted NAME COMMAND...: with a clean environment.
booted() {
    nsenter --target "${LEADER[$1]}" --all --wdns=/ \
        env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
        LC_ALL=C.UTF-8 PYTHONUNBUFFERED=1 DEBIAN_FRONTEND=noninteractive "${@:2}"
}

# connect NAME ADDRESS NAME ADDRESS: an address has the length of its network.
connect() {
    local port
    ip link add lan netns "${LEADER[$1]}" type veth \
        peer name lan netns "${LEADER[$3]}"
    for port in "$1 $2" "$3 $4"; do
        booted "${port% *}" ip address add "${port#* }" dev lan
        booted "${port% *}" ip link set lan up
    done
}

# cut_power NAME: as when its power fails.
cut_power() {
    kill -KILL "${LEADER[$1]}"
    wait "${NSPAWN[$1]}" || true
}
