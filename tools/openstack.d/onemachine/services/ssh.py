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
"""SSH between compute hosts: Nova moves servers' disks with it.

Every host has a daemon of its own in its namespaces, and all of them one key
of root's, which is mounted over root's own there: that of the machine is
neither used nor seen.
"""

import pathlib
import shutil

from onemachine import place
from onemachine import processes
from onemachine import shell

_PORT = 22


class Ssh:
    """The SSH daemons of the compute hosts."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where

    @property
    def folder(self) -> pathlib.Path:
        """What is mounted over root's own ``.ssh`` on compute hosts."""
        return self._where.etc / 'ssh'

    def configure(self) -> None:
        """Make keys that are missing, and write the configurations."""
        folder = self._where.folder('etc/ssh')
        folder.chmod(0o700)
        for name in ('id_ed25519', 'host_key'):
            if not (folder / name).exists():
                shell.run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '',
                          '-C', self._where.prefix, '-f', folder / name)
        shutil.copy(folder / 'id_ed25519.pub', folder / 'authorized_keys')
        shell.write(folder / 'config', '\n'.join((
            'Host *', f'    IdentityFile {folder / "id_ed25519"}',
            '    StrictHostKeyChecking no',
            '    UserKnownHostsFile /dev/null', '    LogLevel ERROR', '')),
            0o600)
        for host in self._where.hosts:
            self._configure_daemon(host)

    def _configure_daemon(self, host: str) -> None:
        shell.write(self._config(host), '\n'.join((
            f'ListenAddress {self._where.management(host)}:{_PORT}',
            f'HostKey {self.folder / "host_key"}',
            f'AuthorizedKeysFile {self.folder / "authorized_keys"}',
            'PermitRootLogin prohibit-password',
            'PasswordAuthentication no', 'KbdInteractiveAuthentication no',
            'StrictModes no', 'UsePAM no', 'PidFile none', 'UseDNS no',
            # What scp talks to.
            'Subsystem sftp internal-sftp', '')))

    def _config(self, host: str) -> pathlib.Path:
        return self._where.etc / host / 'sshd_config'

    def ensure(self, host: str) -> bool:
        """Start a host's daemon."""
        pathlib.Path('/run/sshd').mkdir(exist_ok=True)
        address = self._where.management(host), _PORT
        return self._given.processes.ensure(processes.Daemon(
            name=f'{host}-sshd', place=host,
            command=('/usr/sbin/sshd', '-D', '-e', '-f',
                     self._config(host)),
            inputs=(self._config(host),),
            ready=lambda: processes.listens(*address)))
