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
"""Which process of the suite runs as whom, with which capabilities."""

import grp
import pathlib
import pwd

from tests.functional.openstack import nova_hosts

from onemachine.services import suite  # isort: skip

_CHOWN, _OVERRIDE, _SEARCH = 1 << 0, 1 << 1, 1 << 2
# As an agent starts them: for outputs, reading, writing, and programs.
_PROCESSES = [_CHOWN | _OVERRIDE, _SEARCH, _CHOWN | _OVERRIDE, _OVERRIDE]


def _status(task: pathlib.Path) -> dict[str, list[str]]:
    lines = (line.split(':', 1)
             for line in (task / 'status').read_text().splitlines())
    return {key: value.split() for key, value in lines}


class PrivilegesTest(nova_hosts.NovaTest):

    def process_of(self, name: str) -> pathlib.Path:
        pid = self.trial.processes.pid(f'{name}-agent')
        self.assertIsNotNone(pid)
        return pathlib.Path(f'/proc/{pid}')

    def children(self, process: pathlib.Path) -> list[pathlib.Path]:
        text = (process / 'task' / process.name / 'children').read_text()
        return [pathlib.Path('/proc', pid) for pid in text.split()]

    def assert_process(self, process: pathlib.Path, kept: int) -> None:
        """Check user and capabilities of every thread."""
        user = str(pwd.getpwnam(suite.USER).pw_uid)
        group = str(grp.getgrnam(suite.USER).gr_gid)
        for task in (process / 'task').iterdir():
            found = _status(task)
            self.assertEqual([user] * 4, found['Uid'])
            self.assertEqual([group] * 4, found['Gid'])
            self.assertEqual(['1'], found['NoNewPrivs'])
            for name in ('CapPrm', 'CapEff'):
                self.assertEqual(kept, int(found[name][0], 16), name)

    def test_agents_have_no_capabilities(self):
        for name in (suite.REPOSITORY, suite.EDGE):
            self.assert_process(self.process_of(name), 0)
            self.assertEqual([], self.children(self.process_of(name)))
            self.assertEqual(
                0, int(_status(self.process_of(name))['CapBnd'][0], 16))
        for name in self.trial.hosts:
            self.assert_process(self.process_of(name), 0)

    def test_each_process_has_those_of_its_need(self):
        for name in self.trial.hosts:
            children = self.children(self.process_of(name))
            self.assertEqual(_PROCESSES, [
                int(_status(child)['CapPrm'][0], 16) for child in children])
            for child, kept in zip(children, _PROCESSES):
                self.assert_process(child, kept)

    def test_images_and_disks_are_their_owners(self):
        """An image is delivered; its server is saved and restored."""
        host = self.trial.hosts[0]
        image = self.image_of('web')
        with self.assert_delivers(host):
            server = self.create(image, host)
        base = self.base(host, image)
        self.assert_same_owner(base, base.parent)
        saved = self.type(
            f'server version create {server} --wait -f json')['id']
        self.addCleanup(self.type, f'server version delete {saved} --wait')
        disk = self.trial.instances(host) / server / 'disk'
        for method in ('rollback', 'rebuild'):
            before = self.boots(server)
            self.type(f'server version restore {saved} --restart'
                      f' --discard-current --method {method} -f json')
            self.wait_for_status(server, 'ACTIVE')
            self.wait_until(lambda: self.boots(server) != before,
                            'the guest came up again', nova_hosts.SECONDS)
            self.assert_same_owner(disk, disk.parent)
            # Otherwise it says the same number after the next restore.
            with self.assert_boots_again(server):
                self.compute.reboot_server(server, 'HARD')
                self.wait_for_status(server, 'ACTIVE')
        self.assertEqual([], [path.name for path in disk.parent.iterdir()
                              if '.rebuilt' in path.name
                              or path.name.endswith('.rollback')])

    def assert_same_owner(self, path: pathlib.Path, other: pathlib.Path
                          ) -> None:
        one, two = path.stat(), other.stat()
        self.assertEqual((two.st_uid, two.st_gid), (one.st_uid, one.st_gid))
