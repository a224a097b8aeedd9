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
"""Hosts that boot from one image, and its repository."""

import collections.abc
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from bench.harness import processes
from bench.lazy import boots
from diffcache_openstack import _native
from diffcache_openstack.agent.data_plane import native_plane
from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import programs
from diffcache_openstack.sites import views

WAN_BYTES_PER_S, WAN_SECONDS, LAN_BYTES_PER_S = 12.5e6, 0.02, 25e6
KEY = bytes(range(32))
_MARKS_AT = 128


class Host:
    """A host: its data plane, its diffcached, and its reader.

    :param settings: of diffcached's configuration, ``files`` and ``tuning``
    """

    def __init__(self, folder: pathlib.Path, name: str, **settings):
        self.name = name
        self.folder = folder / name
        self.plane = native_plane.DataPlane(
            self.folder / 'objects', name, '127.0.0.1:0', KEY,
            key_name='site', rate=LAN_BYTES_PER_S)
        config = {'socket': str(self.folder / 'socket'), 'socket_group': None,
                  'state': str(self.folder / 'state'),
                  'mount': str(self.folder / 'mount'),
                  'identity': {'key_name': 'site',
                               'key_file': str(folder / 'key')}, **settings}
        self.process = subprocess.Popen(
            [programs.find('diffcached'), 'supervise', json.dumps(config)],
            stderr=subprocess.DEVNULL)
        self.daemon = diffcached.Diffcached(config['socket'])
        self.reader = None

    def serve(self, image: str, wanted: dict) -> None:
        while True:
            try:
                status = self.daemon.add(image, wanted)
                break
            except exceptions.ServiceUnavailable:
                if self.process.poll() is not None:
                    raise
                time.sleep(0.05)
        self.path = status['path']
        self.plane.attach(views.Key(views.IMAGES, image),
                          pathlib.Path(status['data_path']).parent)

    def open(self, reads) -> None:
        rows = self.folder / 'reads'
        rows.write_text(json.dumps(reads))
        self.reader = subprocess.Popen(
            [sys.executable, boots.READER, self.path, str(rows)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.reader.stdout.readline() == 'ready\n'

    def status(self) -> dict:
        return self.daemon.images()[0]

    def present(self) -> set[int]:
        """Return the chunks that have arrived."""
        path = pathlib.Path(self.status()['data_path'])
        marks = path.with_suffix('.leaves').read_bytes()[_MARKS_AT:]
        return {leaf // 4 for leaf, mark in enumerate(marks) if mark}

    def kill(self) -> None:
        """End all of it at once."""
        status = self.status()
        self.process.kill()
        self.reader.kill()
        for pid in (status['pid'], status['worker_pid']):
            os.kill(pid, signal.SIGKILL)
        self.plane.close()

    def end(self) -> None:
        if self.reader is not None:
            self.reader.kill()
            self.reader.wait()
        with contextlib.suppress(exceptions.DiffCacheError):
            for status in self.daemon.images():
                # One that has gone meanwhile keeps no other one.
                with contextlib.suppress(exceptions.DiffCacheError):
                    self.daemon.remove(status['content_id'])
        self.process.kill()
        self.process.wait()
        self.plane.close()
        # A mount whose keeper was killed.
        for path in (self.folder / 'mount').glob('*'):
            subprocess.run(['umount', '--lazy', path], check=False,
                           stderr=subprocess.DEVNULL)


class Repository:
    """A repository with one image, behind a WAN.

    :ivar wanted: the image in the service configuration of diffcached
    """

    def __init__(self, folder: pathlib.Path, size: int,
                 content: pathlib.Path | None = None):
        self.folder = folder
        (folder / 'key').write_text(KEY.hex())
        (folder / 'key').chmod(0o600)
        image = folder / 'image'
        if content is not None:
            shutil.copyfile(content, image)
        else:
            processes.write_random(image, size, folder)
        manifest = folder / 'manifest'
        self.image = _native.manifest_create(image, manifest)['content_id']
        self.plane = native_plane.DataPlane(
            folder / 'repository', 'repository', '127.0.0.1:0', KEY,
            key_name='site', rate=WAN_BYTES_PER_S, latency=WAN_SECONDS)
        self.path = folder / 'repository' / 'images' / self.image
        image.rename(self.path)
        self.wanted = {'manifest': str(manifest), 'wait': 60,
                       'sources': [{'peer': self.plane.url, 'wan': True}]}

    def sent(self) -> int:
        """Return the bytes that have left it."""
        return self.plane.stats()['sent']['images']

    @contextlib.contextmanager
    def hosts(self, count: int, **settings
              ) -> collections.abc.Iterator[list[Host]]:
        """Start hosts that have nothing, and end them."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder, \
                contextlib.ExitStack() as stack:
            path = pathlib.Path(folder)
            (path / 'key').symlink_to(self.folder / 'key')
            found = []
            for number in range(count):
                found.append(Host(path, f'host-{number}', **settings))
                stack.callback(found[-1].end)
            yield found


@contextlib.contextmanager
def repository(folder: pathlib.Path, size: int,
               content: pathlib.Path | None = None
               ) -> collections.abc.Iterator[Repository]:
    """Serve an image, of random bytes without content."""
    folder.mkdir()
    made = Repository(folder, size, content)
    try:
        yield made
    finally:
        made.plane.close()
