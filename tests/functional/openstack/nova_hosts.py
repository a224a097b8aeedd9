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
"""What the tests of Nova look at and wait for on compute hosts."""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import uuid

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from tests.functional.openstack import machine

MARKER = 'DIFFCACHE-GUEST-READY'
# Under emulation on few processors, beside other work.
SECONDS = 600


class NovaTest(machine.TestCase):
    """A test of the driver on real compute hosts."""

    def setUp(self) -> None:
        super().setUp()
        self.compute = self.trial.admin.compute
        self.finally_do = self.addCleanup

    @contextlib.contextmanager
    def for_all_tests(self):
        """What is made meanwhile lasts until the last test of the class."""
        self.finally_do = self.addClassCleanup
        try:
            yield
        finally:
            self.finally_do = self.addCleanup

    @contextlib.contextmanager
    def aggregate(self, hosts, metadata):
        """Hosts are of an aggregate meanwhile."""
        made = self.compute.create_aggregate(
            name=f'trial-{uuid.uuid4().hex[:8]}')
        self.compute.set_aggregate_metadata(made, metadata)
        try:
            for host in hosts:
                self.compute.add_host_to_aggregate(made, host)
            yield
        finally:
            for host in hosts:
                self.compute.remove_host_from_aggregate(made, host)
            self.compute.delete_aggregate(made)

    # -- images

    def raw(self, guest: str) -> pathlib.Path:
        """The raw disk of a guest of the family."""
        return self.trial.guests()[f'guest-{guest}']

    def image_of(self, guest: str, form: str = 'raw') -> str:
        """A new image of a guest, that the agents of the site know."""
        path = self.raw(guest)
        if form == 'raw':
            return self.upload(path)
        converted = self.temporary(form)
        subprocess.run(['qemu-img', 'convert', '-c', '-O', form, path,
                        converted], check=True)
        return self.upload(converted, form)

    def temporary(self, form: str) -> pathlib.Path:
        """A file that is removed with the test."""
        path = (self.trial.where.folder('cache')
                / f'{uuid.uuid4().hex}.{form}')
        self.finally_do(path.unlink, missing_ok=True)
        return path

    def new_content(self, guest: str, megabytes: int) -> pathlib.Path:
        """A guest's disk that grew by data which nobody has."""
        path = self.temporary('raw')
        shutil.copy(self.raw(guest), path)
        with open(path, 'ab') as file:
            for _ in range(megabytes):
                file.write(os.urandom(1 << 20))
        return path

    def upload(self, path: pathlib.Path, form: str = 'raw', **more) -> str:
        """A new image of a file, that the agents of the site know."""
        image = self.trial.upload(f'nova-{uuid.uuid4().hex[:8]}', path, form,
                                  **more)
        self.finally_do(self.trial.admin.image.delete_image, image,
                        ignore_missing=True)
        self.wait_until_known(image)
        return image

    def agent(self, host: str) -> local_client.LocalClient:
        """The agent of a host."""
        return local_client.LocalClient(str(self.trial.socket(host)), 60)

    def known(self, host: str, image: str) -> dict | None:
        """What a host's agent says of an image."""
        try:
            return self.agent(host).image(image)
        except (exceptions.NotFound, exceptions.ServiceUnavailable):
            return None

    def wait_until_known(self, image: str) -> None:
        """Wait until the agents of all hosts know an image.

        And would deliver it: the file of a compressed image is fewer bytes
        until the repository has a compressed form of the content.
        """
        def ready(host):
            found = self.known(host, image)
            return found and 0.95 * found['wan_bytes'] <= found['file_size']

        for host in self.trial.hosts:
            self.wait_until(lambda host=host: ready(host),
                            f'image {image} is ready for {host}', SECONDS)

    # -- Nova's side of a host

    def base(self, host: str, image: str) -> pathlib.Path:
        """The base file of an image on a host."""
        name = hashlib.sha1(image.encode(),
                            usedforsecurity=False).hexdigest()
        return self.trial.instances(host) / '_base' / name

    def tally(self, host: str) -> dict:
        """What nova-compute counted on a host."""
        path = self.trial.inside(
            host, self.trial.where.host / 'state' / 'diffcache-images.json')
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return {'delivered': {}, 'passed': {}, 'fallbacks': {},
                    'snapshots': {}}

    def deliveries(self, host: str) -> int:
        """Images that the agent of a host delivered to Nova so far."""
        return sum(count for way, count in self.tally(host)[
            'delivered'].items() if way != 'wan_bytes')

    def fallbacks(self, host: str) -> int:
        """Images that the agent of a host failed to deliver so far."""
        return sum(self.tally(host)['fallbacks'].values())

    @contextlib.contextmanager
    def assert_delivers(self, host: str, count: int = 1):
        """Check that the block takes this many deliveries and no fallback."""
        before = self.deliveries(host), self.fallbacks(host)
        yield
        self.assertEqual(
            (before[0] + count, before[1]),
            (self.deliveries(host), self.fallbacks(host)), self.tally(host))

    def said(self, name: str, words: str, since: int) -> list[str]:
        """Lines of a process's log with some words, from a position on."""
        with open(self.trial.log(name), errors='replace') as log:
            log.seek(since)
            return [line for line in log if words in line]

    def end_of_log(self, name: str) -> int:
        """The position of a log's end."""
        return self.trial.log(name).stat().st_size

    # -- servers

    def create(self, image: str, host: str | None = None) -> str:
        """A server whose guest has spoken; deleted in the end.

        :param host: where; chosen by the scheduler if none
        """
        server = self.start(image, host)
        self.guest(server)
        return server

    def start(self, image: str, host: str | None = None) -> str:
        """A server that is active; its guest may not be up yet."""
        server = self.trial.create(image, host)
        self.finally_do(self.trial.delete, server)
        self.trial.wait_active(server)
        return server

    def boots(self, server: str) -> int:
        """How often the guest has come up with its disk, as it said last."""
        return int(self.guest(server).rpartition('boot=')[2])

    @contextlib.contextmanager
    def assert_boots_again(self, server: str):
        """The guest comes up once more meanwhile, with the same disk."""
        before = self.boots(server)
        yield
        self.guest(server, boot=before + 1)

    def wait_for_status(self, server: str, *statuses: str):
        """Wait until a server has one of some states; returns the server."""
        def look():
            found = self.compute.get_server(server)
            if found.status == 'ERROR' and 'ERROR' not in statuses:
                self.fail(f'server {server}: {found.fault}')
            busy = found.task_state is not None
            return found.status in statuses and not busy and found

        return self.wait_until(look, f'{server} is {statuses}', SECONDS)

    def guest(self, server: str, host: str | None = None, **expected) -> str:
        """Wait until a guest has said what it is; returns the line.

        :param expected: values in the marker's line, such as boot=2
        """
        if host is None:
            host = self.compute.get_server(server).compute_host
        # In the order in which the guest has them: the name, then the boot.
        wanted = [f' {key}={value}' for key, value in expected.items()]
        line = self.trial.wait_for_line(
            server, host, wanted[-1] if wanted else MARKER, SECONDS)
        for words in (MARKER, *wanted):
            self.assertIn(words, line)
        return line
