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
"""What the driver does when something is broken, on real compute hosts."""

import contextlib
import hashlib
import os
import pathlib
import signal
import subprocess
import time

from openstack import exceptions as sdk_exceptions

from diffcache_openstack.common import exceptions
from tests.functional.openstack import nova_hosts

# Seconds by which an agent that hangs is found out on however busy a machine:
# well below [diffcache] stall_timeout, by which any that is silent is.
SOON = 40


class FaultTest(nova_hosts.NovaTest):

    def setUp(self):
        super().setUp()
        self.host, self.other = self.trial.hosts[:2]

    @contextlib.contextmanager
    def falls_back(self, reason, host):
        """One image is not delivered meanwhile; it is counted and said."""
        before = self.tally(host)['fallbacks'].get(reason, 0)
        position = self.end_of_log(f'{host}-nova')
        yield
        after = self.tally(host)
        self.assertEqual(before + 1, after['fallbacks'].get(reason, 0))
        [line] = self.said(f'{host}-nova', 'was not delivered', position)
        self.assertIn(reason, line)
        self.assertIn(after['last_fallback']['image'], line)

    def assertRight(self, server, image, path):
        """A server came up from an image with the content of a file."""
        host = self.compute.get_server(server).compute_host
        self.guest(server, boot=1)
        self.assertEqual(_sha256(path), _sha256(self.base(host, image)))

    def held(self, host, image):
        """The file of an image's content in the cache of a host's agent."""
        content = self.known(self.host, image)['content_id']
        where = self.trial.where
        return self.trial.inside(
            host, where.host / 'diffcache/objects/images' / content)

    def again(self, server, image):
        """Delete a server, and have Nova forget its image, but no agent."""
        host = self.compute.get_server(server).compute_host
        self.trial.delete(server)
        self.base(host, image).unlink()


class TestProcesses(FaultTest):

    def setUp(self):
        super().setUp()
        self.image_id = self.image_of('web')

    def test_agent_that_hangs(self):
        pid = self.trial.processes.pid(f'{self.host}-agent')
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        position = self.end_of_log(f'{self.host}-nova')
        self.start(self.image_id, self.host)
        os.kill(pid, signal.SIGCONT)
        created, warned = (
            _when(self.said(f'{self.host}-nova', words, position)[0])
            for words in ('Creating image(s)', 'was not delivered'))
        self.assertLess(warned - created, SOON)

    def test_agent_killed_in_the_middle_of_a_delivery(self):
        # Whatever it is built from, this much has to come.
        path = self.new_content('base', 96)
        image = self.upload(path)
        self.wait_until_quiet()
        before = self.trial.wan_bytes()
        with self.falls_back('ServiceUnavailable', self.host):
            server = self.trial.create(image, self.host)
            self.addCleanup(self.trial.delete, server)
            self.wait_until(
                lambda: self.trial.wan_bytes() - before > 16 << 20,
                'the delivery is under way')
            with self.trial.stopped(f'{self.host}-agent',
                                    number=signal.SIGKILL):
                self.trial.wait_active(server)
        self.assertRight(server, image, path)
        self.wait_until(lambda: self.known(self.host, image),
                        'the agent is back')
        self.again(server, image)
        with self.assert_delivers(self.host):
            self.assertRight(self.start(image, self.host), image, path)

    def test_conductor_that_is_down(self):
        position = self.end_of_log('nova-scheduler')
        before = [self.fallbacks(host) for host in self.trial.hosts]
        with self.trial.stopped('diffcache-conductor'):
            server = self.start(self.image_id)
            self.assertRight(server, self.image_id, self.raw('web'))
        self.assertEqual(before, [self.fallbacks(host)
                                  for host in self.trial.hosts])
        [line] = self.said(
            'nova-scheduler', 'Could not read the costs of images', position)
        self.assertIn('[diffcache] transport_url', line)


class TestDamage(FaultTest):

    def test_damaged_content_at_a_peer_and_at_home(self):
        path = self.new_content('base', 4)
        image = self.upload(path)
        self.start(image, self.host)
        self.wait_until(
            lambda: self.known(self.other, image)['way'] == 'peer',
            f'{self.other} knows who has it')
        damaged = self.held(self.host, image)
        with self.found_damaged(self.host, damaged), \
                self.assert_delivers(self.other):
            server = self.start(image, self.other)
            self.assertRight(server, image, path)
        self.again(server, image)
        damaged = self.held(self.other, image)
        with self.found_damaged(self.other, damaged), \
                self.assert_delivers(self.other):
            self.assertRight(self.start(image, self.other), image, path)

    @contextlib.contextmanager
    def found_damaged(self, host, path):
        """A file has a wrong byte; its host says so, and serves it not."""
        with open(path, 'r+b') as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        damaged = _sha256(path)
        position = self.end_of_log(f'{host}-agent')
        yield
        self.wait_until(
            lambda: [line for line in self.said(
                f'{host}-agent', 'is damaged and no longer served', position)
                if path.name in line], f'{host} names {path.name}')
        if path.exists():
            self.assertNotEqual(damaged, _sha256(path))


class TestFullDisk(FaultTest):

    def test_neither_the_agent_nor_nova_has_room(self):
        # More than there is room for, also if it shares blocks with others.
        path = self.new_content('base', 64)
        image = self.upload(path)
        self.wait_until_quiet()
        position = self.end_of_log(f'{self.host}-nova')
        with self.falls_back('NoSpace', self.host), self.full(self.host, 40):
            server = self.trial.create(image, self.host)
            self.addCleanup(self.trial.delete, server)
            self.wait_for_status(server, 'ERROR')
        self.assertTrue([line for line in self.said(
            f'{self.host}-nova', f'Image {image} needs', position)
            if '[DEFAULT] instances_path' in line])
        self.assertFalse(self.base(self.host, image).exists())
        with self.assert_delivers(self.host):
            self.assertRight(self.start(image, self.host), image, path)

    @contextlib.contextmanager
    def full(self, host, megabytes):
        """A host's disk has this much room, for instances and the agent."""
        ballast = self.trial.instances(host).parent / 'ballast'
        state = os.statvfs(ballast.parent)
        room = state.f_bavail * state.f_frsize - (megabytes << 20)
        with open(ballast, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, room)
        try:
            yield
        finally:
            ballast.unlink()


class TestRights(FaultTest):
    """Who may not have an image has it from no cache either."""

    def setUp(self):
        super().setUp()
        self.path = self.new_content('base', 4)
        # What former tests have left would take the room.
        for host in self.trial.hosts:
            self.wait_until(lambda host=host: self.is_tidy(host),
                            f'{host} drops images that were deleted')

    def is_tidy(self, host):
        """Return whether a host holds images of known images alone."""
        known = (self.known(host, image.id)
                 for image in self.trial.admin.image.images())
        folder = self.trial.inside(
            host, self.trial.where.host / 'diffcache/objects/images')
        return {path.name for path in folder.glob('[!.]*')} <= {
            found['content_id'] for found in known if found}

    def cached(self, image):
        """Have an image at both hosts, in Nova and in the agents."""
        for host in (self.host, self.other):
            self.start(image, host)
            self.wait_until(self.held(host, image).exists,
                            f'{host} keeps {image}')
        return [self.held(host, image) for host in (self.host, self.other)]

    def assertNoServer(self, image, words, who=None):
        """Nova refuses to make a server of an image."""
        with self.assertRaisesRegex(sdk_exceptions.BadRequestException,
                                    words):
            self.trial.create(image, who=who)

    def assertRefused(self, image, words):
        """Neither Nova nor an agent gives an image."""
        self.assertNoServer(image, words)
        for host in (self.host, self.other):
            output = self.trial.where.host / 'instances' / 'refused'
            self.assertRaisesRegex(
                exceptions.NotFound, image, self.agent(host).content, image,
                str(output))

    def assertGone(self, image, kept):
        for host, path in zip((self.host, self.other), kept, strict=True):
            self.wait_until(lambda host=host: not self.known(host, image),
                            f'{host} forgets {image}')
            self.wait_until(lambda path=path: not path.exists(),
                            f'{host} drops {path.name}')

    def test_deactivated_while_it_is_cached_and_back(self):
        image = self.upload(self.path)
        kept = self.cached(image)
        glance = self.trial.admin.image
        glance.deactivate_image(image)
        self.assertGone(image, kept)
        self.assertRefused(image, 'not active')
        glance.reactivate_image(image)
        self.wait_until_known(image)
        self.assertRight(self.start(image, self.host), image, self.path)

    def test_deleted_while_it_is_cached(self):
        image = self.upload(self.path)
        kept = self.cached(image)
        self.trial.admin.image.delete_image(image)
        self.assertGone(image, kept)
        self.assertRefused(image, 'Can not find requested image')

    def test_private_image_of_another_project(self):
        owner, other = (self.trial.member(name)
                        for name in ('nova-owner', 'nova-other'))
        image = self.upload(self.path, who=owner, visibility='private')
        self.cached(image)
        self.assertNoServer(image, 'Can not find requested image', other)
        server = self.trial.create(image, who=owner)
        self.addCleanup(self.trial.delete, server)
        self.trial.wait_active(server)
        self.assertRight(server, image, self.path)


class TestMistakes(nova_hosts.NovaTest):
    """nova-compute with a wrong option does not start, and says why."""

    def start_compute(self, **options: dict[str, str]
                      ) -> subprocess.CompletedProcess:
        """Run nova-compute with some options over those that it has."""
        host = self.trial.hosts[0]
        path = self.directory / 'wrong.conf'
        path.write_text('\n'.join(
            line for group, values in options.items()
            for line in (f'[{group}]', *(f'{name} = {value}' for name, value
                                         in values.items()), '')))
        where = self.trial.where
        return subprocess.run(
            [*self.trial.processes.enter(host),
             str(where.program('nova-compute')),
             '--config-file', str(where.etc / host / 'nova.conf'),
             '--config-file', str(path)],
            capture_output=True, text=True, timeout=nova_hosts.SECONDS,
            env={**os.environ,
                 'PATH': f'{pathlib.Path(where.program("python")).parent}:'
                         + os.environ['PATH']})

    def assertNames(self, option: str, **options) -> None:
        """nova-compute ends and one line of its log names the option."""
        ended = self.start_compute(**options)
        self.assertNotEqual(0, ended.returncode)
        said = [line for line in ended.stderr.splitlines()
                if 'nova-compute does not start' in line]
        self.assertEqual(1, len(said), ended.stderr[-2000:])
        self.assertIn(option, said[0])

    def test_backend_without_base_images(self):
        self.assertNames('[libvirt] images_type',
                         libvirt={'images_type': 'lvm',
                                  'images_volume_group': 'vg'})

    def test_socket_in_no_directory(self):
        self.assertNames('[diffcache] socket',
                         diffcache={'socket': '/nowhere/agent.sock'})

    def test_socket_is_a_file(self):
        self.assertNames('[diffcache] socket',
                         diffcache={'socket': '/etc/passwd'})

    def test_no_socket(self):
        self.assertNames('[diffcache] socket', diffcache={'socket': ''})

    def test_without_the_hook(self):
        ended = self.start_compute(DEFAULT={'config_source': ''})
        self.assertNotEqual(0, ended.returncode)
        self.assertIn('diffcache', ended.stderr)


def _sha256(path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()


def _when(line: str) -> float:
    """The instant at which a line was logged."""
    day, clock = line.split()[:2]
    return time.mktime(time.strptime(
        f'{day} {clock.partition(".")[0]}', '%Y-%m-%d %H:%M:%S'))
