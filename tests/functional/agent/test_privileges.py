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
"""An agent without root: which of its processes may do what.

Real users, real capabilities, and the figures of ``/proc``.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import unittest

from tests import base

AGENT, NOVA, QEMU = 34501, 34502, 34503
_GRANTED = '+chown,+dac_override,+dac_read_search'
_CHOWN, _OVERRIDE, _SEARCH = 1 << 0, 1 << 1, 1 << 2
_FILES = _CHOWN | _OVERRIDE

# Runs in the agent's place: separates its privileges, and does with the files
# of others what an agent does.
_AGENT = '''
import json, os, pathlib, sys
from diffcache_openstack.agent.privileged import start
from diffcache_openstack.conf import opts
conf = opts.new_config([])
root = pathlib.Path(sys.argv[1])
conf.set_override('state_dir', str(root / 'state'), 'agent')
conf.set_override('output_directories', [str(root / 'instances')], 'agent')
conf.set_override('directories', [str(root / 'instances')], 'versions')
Outputs = start.separate().outputs(conf)
from diffcache_openstack.agent.images.delivery import outputs
from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.disks import disk_files, locks
from diffcache_openstack.versions.disks import disk_writers
from diffcache_openstack.versions.disks import rollback_journal
from diffcache_openstack.versions.guests import snapshots
import threading
threading.Event().wait(0)
found = {}


def status(task):
    lines = (line.split(':', 1) for line in open(f'{task}/status'))
    return {key: value.split() for key, value in lines if key in (
        'Uid', 'Gid', 'CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs')}


def processes():
    pid = os.getpid()
    children = open(f'/proc/{pid}/task/{pid}/children').read().split()
    return {'agent': [status(task) for task in
                      pathlib.Path(f'/proc/{pid}/task').iterdir()],
            'children': [[status(task) for task in
                          pathlib.Path(f'/proc/{child}/task').iterdir()]
                         for child in children]}


def error_of(call, *arguments):
    try:
        call(*arguments)
    except (exceptions.DiffCacheError, OSError) as error:
        return type(error).__name__


output = root / 'instances' / '_base' / 'image'
opened = Outputs([str(root / 'instances')]).open(str(output))
with outputs.unfinished(opened) as part:
    os.write(part.fd, b'image')
    part.publish(True)
staging = root / 'state' / 'objects' / 'staging'
staging.mkdir(parents=True)
(staging / 'staged').write_bytes(b'staged')
opened = Outputs([str(root / 'instances')]).open(str(output) + '2')
if opened.can_take(staging / 'staged'):
    opened.take(staging / 'staged', True)
find = Outputs([str(root / 'instances')]).find
found['closed'] = error_of(open, output)
descriptor = find(output).open()
with open(f'/proc/self/fd/{descriptor}') as stream:
    found['read'] = stream.read()
disk = root / 'instances' / 'server' / 'disk'
found['private'] = error_of(find(disk).open)
found['direct'] = error_of(open, disk)
found['info'] = snapshots.disk_info(disk, 'raw')['size']
locks.check_idle(disk)
with disk_writers.open_disk(disk, 'raw') as writer:
    writer.flush()


rollback_journal.write(disk, 'series', 'v', None)
found['journal'] = rollback_journal.read(disk)
rollback_journal.remove([disk])
access = disk_files.access()
room = access.create_room(disk)
pathlib.Path(f'/proc/self/fd/{room}/disk').write_bytes(b'new')
access.adopt(disk)
access.replace(disk)
access.remove_room(disk)
qcow2 = disk.with_name('qcow2')
if qcow2.exists():
    snapshots.OfflineSnapshotter(qcow2).create('dc-1')
    found['snapshots'] = [name for _, name, _ in snapshots.disk_info(
        qcow2, 'qcow2')['snapshots']]
    with disk_writers.open_disk(qcow2, 'qcow2') as writer:
        writer.flush()
foreign = root / 'etc' / 'shadow'
link = root / 'instances' / 'server' / 'link'
found['refused'] = [
    error_of(access.open, foreign), error_of(access.open, link),
    error_of(access.open, root / 'instances' / '..' / 'etc' / 'shadow'),
    error_of(access.remove, disk), error_of(access.create, disk),
    error_of(Outputs([str(root)]).open, str(root / 'etc' / 'new')),
    error_of(open, foreign)]
staging.rename(staging.with_name('gone'))
staging.symlink_to(root / 'etc')
found['refused'].append(error_of(
    Outputs([]).find(output).take, staging / 'shadow', True))
found['processes'] = processes()
print(json.dumps(found))
'''


def _python() -> str | None:
    """Return a Python that other users may execute."""
    for name in (sys.executable, f'/usr/bin/python3.{sys.version_info.minor}'):
        path = pathlib.Path(os.path.realpath(name))
        if path.exists() and all(parent.stat().st_mode & 1
                                 for parent in path.parents):
            return name
    return None


@unittest.skipUnless(os.geteuid() == 0 and shutil.which('setpriv'),
                     'needs root, and setpriv (package util-linux)')
@unittest.skipUnless(_python(), 'needs a Python that other users may execute')
class PrivilegesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        for parent in (self.directory, *self.directory.parents[:1]):
            parent.chmod(0o755)
        self.disk = self.directory / 'instances' / 'server' / 'disk'
        self.disk.parent.mkdir(parents=True)
        self.disk.write_bytes(bytes(8192))
        os.chown(self.disk, QEMU, QEMU)
        self.disk.chmod(0o600)
        self.base = self.directory / 'instances' / '_base'
        self.base.mkdir()
        self.foreign = self.write_file('etc/shadow', b'secret')
        self.foreign.chmod(0o600)
        (self.disk.with_name('link')).symlink_to(self.foreign)
        for path in (self.base, self.base.parent, self.disk.parent):
            os.chown(path, NOVA, NOVA)
        self.base.chmod(0o700)
        (self.directory / 'state').mkdir(mode=0o711)
        os.chown(self.directory / 'state', AGENT, AGENT)

    def run_agent(self, *options: str) -> dict:
        checkout = pathlib.Path(__file__).parents[3]
        done = subprocess.run(
            ['setpriv', f'--reuid={AGENT}', f'--regid={AGENT}',
             '--clear-groups', *options, _python(), '-W', 'ignore', '-c',
             _AGENT, str(self.directory)],
            env={'PATH': os.environ['PATH'], 'PYTHONPATH': os.pathsep.join(
                [str(checkout), sysconfig.get_path('purelib')])},
            cwd='/', capture_output=True, text=True, timeout=240)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def make_qcow2(self) -> bool:
        if not shutil.which('qemu-img') or not shutil.which('qemu-nbd'):
            return False
        path = self.disk.with_name('qcow2')
        subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', str(path),
                        '1M'], check=True)
        os.chown(path, QEMU, QEMU)
        path.chmod(0o600)
        return True

    def test_each_process_has_what_it_needs(self):
        qcow2 = self.make_qcow2()
        found = self.run_agent(f'--inh-caps={_GRANTED}',
                               f'--ambient-caps={_GRANTED}')
        # In every thread.
        for task in found['processes']['agent']:
            self.assert_task(task, 0)
        kept = []
        for tasks in found['processes']['children']:
            kept.append(int(tasks[0]['CapPrm'][0], 16))
            for task in tasks:
                self.assert_task(task, kept[-1])
        self.assertEqual([_SEARCH, _FILES, _OVERRIDE], kept)
        self.assertEqual(['NotAFile' if number == 1 else 'PermissionError'
                          if number == 6 else 'InvalidInput'
                          for number in range(8)], found['refused'])
        self.assertEqual('PermissionError', found['direct'])
        self.assertEqual(('PermissionError', 'image'),
                         (found['closed'], found['read']))
        self.assertEqual('InvalidInput', found['private'])
        self.assertEqual(8192, found['info'])
        self.assertEqual('v', found['journal']['version'])
        self.assert_file(self.base / 'image', b'image', NOVA, 0o644)
        self.assert_file(self.base / 'image2', b'staged', NOVA, 0o644)
        self.assert_file(self.disk, b'new', QEMU, 0o600)
        if qcow2:
            self.assertEqual(['dc-1'], found['snapshots'])
        self.assertEqual(b'secret', self.foreign.read_bytes())
        self.assertEqual(
            sorted(['disk', 'link', *(['qcow2'] if qcow2 else [])]),
            sorted(os.listdir(self.disk.parent)))

    def assert_task(self, task: dict, capabilities: int) -> None:
        self.assertEqual([str(AGENT)] * 4, task['Uid'])
        self.assertEqual(['1'], task['NoNewPrivs'])
        for name in ('CapPrm', 'CapEff'):
            self.assertEqual(capabilities, int(task[name][0], 16), task)
        # Threads that start QEMU's programs pass this one on.
        for name in ('CapInh', 'CapAmb'):
            self.assertIn(int(task[name][0], 16),
                          (0, _OVERRIDE & capabilities), task)

    def assert_file(self, path: pathlib.Path, content: bytes, owner: int,
                    mode: int) -> None:
        found = path.stat()
        self.assertEqual((content, owner, owner, mode), (
            path.read_bytes(), found.st_uid, found.st_gid,
            found.st_mode & 0o7777))
