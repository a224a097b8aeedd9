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
"""What users do meanwhile, and what they were promised."""

import abc
import collections
import hashlib
import pathlib
import random
import sys
import threading
import time
import traceback
import uuid

from oslo_db import exception as db_errors

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.db import listing
from diffcache_openstack.db.versions import server_versions
from diffcache_openstack.db.versions import tasks as version_tasks
from diffcache_openstack.nova import sources
from diffcache_openstack import objects
from tests.functional.agent import family
from tests.functional.agent import servers
from tests.functional.chaos import site

# Longer than any fault, and than what agents and clients wait for each other.
LONGEST_SECONDS = 300.0
EVERYBODY = listing.Viewer(None, True)
_PAUSE_SECONDS = 0.1


class Wrong(Exception):
    """A promise that was not kept."""


class User(abc.ABC):
    """Repeats something in a thread until it is to end.

    :ivar counts: how often it came to what
    :ivar wrong: promises that were not kept
    """

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> None:
        """Wait for the end of what it does now."""
        self._end.set()
        self._thread.join(LONGEST_SECONDS)
        if self._thread.is_alive():
            stack = sys._current_frames()[self._thread.ident]
            self.wrong.append(f'{self} does not end: ' + ''.join(
                traceback.format_stack(stack)))

    @abc.abstractmethod
    def act(self) -> str:
        """Do it once; return what it came to."""

    def _run(self):
        while not self._end.wait(_PAUSE_SECONDS):
            started = time.monotonic()
            try:
                self.counts[self.act()] += 1
            except exceptions.RetryableError as error:
                self.counts[type(error).__name__] += 1
            except Exception as error:
                # What fails for a while is to say so.
                self.wrong.append(f'{self}: {type(error).__name__}: {error}')
            if time.monotonic() - started > LONGEST_SECONDS:
                self.wrong.append(f'{self} took more than {LONGEST_SECONDS} s')


class Nova(User):
    """Requests images of a host's agent as Nova's driver does."""

    def __init__(self, where: site.Site, host: str,
                 images: dict[str, str]) -> None:
        """:param images: SHA-256 by name"""
        super().__init__()
        self._host = host
        self._images = images
        self._number = 0
        self._output = where.instances / f'output-{host}'
        self._source = sources.Source(
            local_client.LocalClient(str(where.socket(host))), None, 30.0,
            image_records.Verifier(signatures.Security()),
            restarts.Restarts(30.0))

    def __str__(self) -> str:
        return f'Nova on {self._host}'

    def act(self) -> str:
        """Have the next image delivered, and compare it."""
        self._number += 1
        name = sorted(self._images)[self._number % len(self._images)]
        self._output.unlink(missing_ok=True)
        delivery = self._source.deliver(
            sources.Wanted(name, 'active', 'raw', None, None),
            str(self._output))
        if family.sha256(self._output) != self._images[name]:
            raise Wrong(f'{name} is wrong ({delivery.detail})')
        return delivery.way


class Server(User):
    """Writes to a stopped server's disk, saves it, restores it.

    :ivar known: what versions have, by their IDs
    """

    def __init__(self, where: site.Site, host: str, noise: random.Random
                 ) -> None:
        super().__init__()
        self._site = where
        self._noise = noise
        self.id, self._disk = where.new_server(host, noise)
        self.known: dict[str, str] = {}

    def __str__(self) -> str:
        return f'the server {self.id}'

    def act(self) -> str:
        """Save, restore or delete."""
        kind = self._noise.choice(('save', 'save', 'restore', 'delete'))
        if kind == 'save' or len(self.known) < 3:
            return self._save()
        version_id = self._noise.choice(sorted(self.known))
        if kind == 'restore':
            return self.restore(version_id)
        del self.known[version_id]
        self._repeat(self._delete, version_id)
        return 'deleted'

    def _delete(self, version_id):
        try:
            self._site.versions.delete_version(self._site.context, version_id)
        except exceptions.NotFound:
            # The answer to the call before was lost.
            pass

    def _save(self):
        with open(self._disk, 'r+b') as stream:
            stream.seek(self._noise.randrange(7) << 20)
            stream.write(self._noise.randbytes(200_000))
        content = self.content()
        new = objects.NewVersion(
            id=str(uuid.UUID(int=self._noise.getrandbits(128), version=4)),
            server_id=self.id, project_id=servers.PROJECT)
        self._repeat(self._site.versions.create_version, self._site.context,
                     new)
        found = self._await(
            lambda: self._read(server_versions.get_version, new.id),
            lambda version: version['state'] != 'saving')
        if found['state'] != 'available':
            return f'not saved: {found["error"]}'
        self.known[new.id] = content
        return 'saved'

    def restore(self, version_id: str) -> str:
        """Restore a version, and compare the disk with it."""
        task_id = str(uuid.UUID(int=self._noise.getrandbits(128), version=4))
        self._repeat(self._site.versions.restore_version, self._site.context,
                     version_id, task_id, None, False)
        task = self._await(
            lambda: self._read(version_tasks.get_task, task_id),
            lambda task: task['state'] not in ('queued', 'running'))
        if task['state'] != 'done':
            return f'not restored: {task["error"]}'
        if self.content() != self.known[version_id]:
            raise Wrong(f'version {version_id} is not what was saved')
        return 'restored'

    def content(self) -> str:
        """Return the disk's SHA-256."""
        return hashlib.sha256(pathlib.Path(self._disk).read_bytes()
                              ).hexdigest()

    def _read(self, query, key):
        return self._site.database.read(query, EVERYBODY, key)

    def _repeat(self, call, *arguments):
        """Repeat an idempotent call until it is answered."""
        return self._await(lambda: (call(*arguments),), bool)

    def _await(self, look, is_so):
        """Return what is seen once it is so, whatever is away meanwhile."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while time.monotonic() < deadline:
            try:
                found = look()
            except (exceptions.RetryableError, db_errors.DBError) as error:
                found, last = None, error
            else:
                last = found
            if found is not None and is_so(found):
                return found
            time.sleep(_PAUSE_SECONDS)
        raise Wrong(f'not so after {LONGEST_SECONDS} s: {last!r}')
