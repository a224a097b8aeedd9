#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.
"""Compute hosts: each a machine of its own as far as Nova can see.

A host has a network, a mount and a UTS namespace, and a disk: a sparse file
with XFS, which shares blocks between files as operators' hosts do. A process
that does nothing but sleep holds the namespaces; the others enter them.
All processes of a host see its disk at the same path, as on real hosts.
"""

import os
import pathlib
import pwd
import uuid

from onemachine import layout
from onemachine import place
from onemachine import processes
from onemachine.services import common
from onemachine.services import nova
from onemachine.services import suite
from onemachine import shell

DISK_SIZE = 12 << 30
# Folders that libvirt expects at fixed places.
_LIBVIRT = ('run', 'etc', 'lib', 'cache', 'log')
_PLACES = {'run': '/run/libvirt', 'etc': '/etc/libvirt',
           'lib': '/var/lib/libvirt', 'cache': '/var/cache/libvirt',
           'log': '/var/log/libvirt'}

# Without a working /dev/kvm libvirt must not see one: it would probe QEMU
# again at every look.
_HOLDER = '''
set -eu
mount -o loop,discard,noatime "$DISK" "$HOST"
mkdir -p "$HOST/instances" "$HOST/diffcache" "$HOST/state"
for name in run etc lib cache log; do
    mkdir -p "$HOST/libvirt/$name"
done
cp "$CONF"/*.conf "$HOST/libvirt/etc/"
# What /sys shows of the network is that of who mounted it.
mount -t sysfs sysfs /sys
mount --bind "$HOST/libvirt/run" /run/libvirt
mount --bind "$HOST/libvirt/etc" /etc/libvirt
mount --bind "$HOST/libvirt/lib" /var/lib/libvirt
mount --bind "$HOST/libvirt/cache" /var/cache/libvirt
mount --bind "$HOST/libvirt/log" /var/log/libvirt
if [ -e /dev/kvm ]; then
    : >"$CONF/kvm"
    mount --bind "$CONF/kvm" /dev/kvm
    # Rights do not keep root from it, a read-only mount does.
    mount -o remount,bind,ro /dev/kvm
fi
# As udev leaves it elsewhere.
chmod 666 /dev/fuse
mkdir -p "$SSH_MOUNT"
mount --bind "$SSH" "$SSH_MOUNT"
mount --bind "$CONF/hosts" /etc/hosts
hostname "$NAME"
exec sleep infinity
'''


def _ssh_folder() -> str:
    """Return the folder that SSH reads, whatever HOME is.

    Tests have a HOME of their own, and must not look like other hosts.
    """
    return f'{pwd.getpwuid(os.geteuid()).pw_dir}/.ssh'


class Computes:
    """The compute hosts of the site."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where

    def configure(self, host: str, glance: str,
                  more: common.Groups) -> None:
        """Write the configurations of a host.

        :param glance: URL of the image service that it uses
        :param more: options of Nova over those given here
        """
        where = self._where
        common.write(
            where, f'{host}/nova.conf', nova.groups(where, glance),
            {
                'DEFAULT': {
                    'host': host,
                    'my_ip': where.management(host),
                    'state_path': where.host / 'state',
                    'instances_path': where.host / 'instances',
                    'compute_driver': 'libvirt.LibvirtDriver',
                    'allow_resize_to_same_host': True,
                    'reserved_host_memory_mb': 0,
                    'reserved_host_disk_mb': 0,
                    'disk_allocation_ratio': 16,
                    'cpu_allocation_ratio': 64,
                    'ram_allocation_ratio': 4,
                    'vif_plugging_is_fatal': False,
                    'vif_plugging_timeout': 0,
                    'update_resources_interval': 30,
                    'force_config_drive': False,
                    # Guests that know no ACPI are not waited for.
                    'shutdown_timeout': 3,
                },
                # Tests wait for what it removes.
                'image_cache': {'manager_interval': 20},
                'libvirt': {
                    'virt_type': 'qemu',
                    'cpu_mode': 'none',
                    'num_pcie_ports': 4,
                    'wait_soft_reboot_seconds': 5,
                    # Hosts reach each other by SSH, for all migrations.
                    'live_migration_scheme': 'ssh',
                },
                'oslo_concurrency': {'lock_path': where.host / 'state/lock'},
                # Of Nova, and of os-brick.
                **{context: {'helper_command': (
                    f'{where.program("privsep-helper")} --config-file'
                    f' {where.etc / host / "nova.conf"}')}
                   for context in ('nova_sys_admin', 'privsep_osbrick')},
                'vnc': {'enabled': False},
                'key_manager': {'backend': 'nova.keymgr.conf_key_mgr'
                                           '.ConfKeyManager',
                                'fixed_key': '0' * 64},
            }, more)
        self._configure_libvirt(host)
        shell.write(where.etc / host / 'libvirt/hosts', ''.join((
            '127.0.0.1 localhost\n', *(
                f'{where.management(name)} {name}\n'
                for name in where.hosts))), 0o644)

    def _configure_libvirt(self, host: str) -> None:
        folder = self._where.folder('etc', host, 'libvirt')
        identity = uuid.uuid5(uuid.NAMESPACE_DNS,
                              self._where.namespace(host))
        shell.write(folder / 'libvirtd.conf', '\n'.join((
            'auth_unix_ro = "none"', 'auth_unix_rw = "none"',
            # nova-compute is root; the suite's agent is not.
            f'unix_sock_group = "{suite.USER}"', 'unix_sock_rw_perms = "0770"',
            f'host_uuid = "{identity}"',
            'log_filters = "3:qemu 3:util"',
            'log_outputs = "2:stderr"', '')))
        shell.write(folder / 'qemu.conf', '\n'.join((
            'user = "root"', 'group = "root"', 'namespaces = []',
            'security_driver = "none"', 'stdio_handler = "file"',
            'cgroup_controllers = []', 'remember_owner = 0', '')))

    def ensure_holder(self, host: str) -> bool:
        """Make the host's disk and start what holds its namespaces."""
        where = self._where
        disk = where.folder('data') / f'{host}.xfs'
        if not disk.exists():
            new = disk.with_suffix('.new')
            new.unlink(missing_ok=True)
            with open(new, 'wb') as file:
                file.truncate(DISK_SIZE)
            shell.run('mkfs.xfs', '-q', '-m', 'reflink=1', new)
            new.rename(disk)
        where.folder('host')
        for path in _PLACES.values():
            pathlib.Path(path).mkdir(parents=True, exist_ok=True)
        return self._given.processes.ensure(processes.Daemon(
            name=f'{host}-host', place=host,
            command=('unshare', '--mount', '--uts', '--propagation', 'slave',
                     'bash', '-c', _HOLDER, f'{where.prefix}-{host}'),
            environment={'DISK': str(disk), 'HOST': str(where.host),
                         'CONF': str(where.etc / host / 'libvirt'),
                         'SSH': str(where.etc / 'ssh'),
                         'SSH_MOUNT': _ssh_folder(),
                         'NAME': host},
            ready=lambda: self._is_held(host)))

    def _is_held(self, host: str) -> bool:
        pid = self._given.processes.pid(f'{host}-host')
        if pid is None:
            return False
        command = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes()
        return command.startswith(b'sleep')

    def ensure_libvirt(self, host: str) -> bool:
        """Start the host's libvirt daemon."""
        processed = self._given.processes
        suite.ensure_user()
        return processed.ensure(processes.Daemon(
            name=f'{host}-libvirtd', place=host,
            command=('libvirtd', '--pid-file', '/run/libvirt/libvirtd.pid'),
            inputs=tuple(sorted(
                (self._where.etc / host / 'libvirt').glob('*.conf'))),
            ready=lambda: shell.succeeds(
                *processed.enter(host), 'virsh', '-c', 'qemu:///system',
                'version')))

    def ensure_nova(self, host: str) -> bool:
        """Start the host's nova-compute."""
        where = self._where
        return self._given.processes.ensure(processes.Daemon(
            name=f'{host}-nova', place=host,
            inputs=(where.etc / host / 'nova.conf',),
            command=(*self._compute(host), '--config-file',
                     where.etc / host / 'nova.conf'),
            environment={'PATH': self._path(),
                         'PYTHONPATH': str(layout.CHECKOUT)}))

    def _compute(self, host: str) -> tuple[object, ...]:
        """Return the program: under eventlet with a meter of its hub."""
        where = self._where
        if not where.series.eventlet_compute:
            return (where.program('nova-compute'),)
        return (where.program('python'), '-m', 'testing.hub_gaps',
                where.log / f'{host}-hub-gaps', 'nova.cmd.compute')

    def _path(self) -> str:
        return f'{self._where.venv}/bin:/usr/sbin:/usr/bin:/sbin:/bin'

    def end(self, host: str) -> None:
        """End a host: guests, and what else lives there."""
        processed = self._given.processes
        holder = processed.pid(f'{host}-host')
        if holder is not None and self._is_held(host):
            processed.end_members(holder)
        processed.stop(f'{host}-host')
