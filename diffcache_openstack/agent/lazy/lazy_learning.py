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
"""Learning: what servers read goes to the conductor, what others read comes.

Hosts teach each other while they boot: the profile of an image, summed over
all hosts, is handed to diffcached as it grows, which fetches its chunks before
they are read here. No guest waits for any of this.
"""

import collections.abc
import logging
import pathlib

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import profile_files
from diffcache_openstack.common import threads
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_lazy_api

LOG = logging.getLogger(__name__)


class LazyLearning(threads.Rounds):
    """Exchanges with the conductor what servers read, from a thread.

    :param host: name of this host
    :param daemon: serves the images
    :param servers: that read them
    :param conductor: RPC client
    :param folder: for profiles that diffcached is to use
    :param interval: seconds between two exchanges
    """

    def __init__(self, host: str, daemon: diffcached.Diffcached,
                 servers: lazy_servers.Servers,
                 conductor: conductor_lazy_api.LazyAPI,
                 folder: pathlib.Path, interval: float) -> None:
        super().__init__('lazy-learning', self.exchange, interval,
                         'Could not exchange what is read of images',
                         exceptions.RetryableError)
        self._host = host
        self._daemon = daemon
        self._servers = servers
        self._conductor = conductor
        self._folder = folder
        self._context = contexts.RequestContext.for_service('diffcache-agent')
        self._known: dict[str, conductor_lazy_api.Profile] = {}
        self._reported: dict[str, tuple[int, int]] = {}
        self._problems: dict[str, str] = {}

    def profile(self, content_id: str) -> pathlib.Path | None:
        """Return the file of the last profile of all projects; None without.

        A host that does not reach the conductor boots with it.
        """
        path = self._path(content_id)
        return path if path.exists() else None

    def exchange(self) -> None:
        """Exchange what is known of each image that is served.

        :raises DiffCacheError: diffcached or the conductor does not answer
        """
        served = {each['content_id']: each for each in self._daemon.images()}
        for memory in (self._known, self._reported, self._problems):
            for content_id in memory.keys() - served.keys():
                del memory[content_id]
        for content_id in self._servers.contents():
            status = served.get(content_id)
            if status is None or 'error' in status:
                continue
            try:
                self._exchange(content_id, bool(status['complete']))
            except exceptions.PermanentError as error:
                # One image keeps no other from being learned.
                self._note(content_id, str(error))

    def _exchange(self, content_id: str, complete: bool) -> None:
        found = self._daemon.profile(content_id)
        reads = self._servers.report(
            content_id, profiles.of_means(found['profile']))
        if reads is None:
            return
        numbers = (reads.run, reads.number)
        if complete and self._reported.get(content_id) == numbers:
            return
        profile = self._conductor.exchange_reads(
            self._context, self._host, reads, self._known.get(content_id))
        self._reported[content_id] = numbers
        if profile is not None:
            self._known[content_id] = profile
            if not complete:
                self._use(content_id, reads.image_id, profile)

    def _note(self, content_id: str, problem: str) -> None:
        """Log why an image is not learned, once."""
        if self._problems.get(content_id) != problem:
            LOG.warning('Could not exchange what is read of content %s:'
                        ' %s', content_id, problem)
        self._problems[content_id] = problem

    def _use(self, content_id: str, image_id: str,
             profile: conductor_lazy_api.Profile) -> None:
        """Hand a profile to diffcached; keep it if it is of all projects."""
        path = self._path(content_id)
        if not profile.shared:
            path = path.with_suffix('.private.json')
        self._folder.mkdir(parents=True, exist_ok=True)
        files.write_json(path, profile_files.document(
            profiles.CHUNK, profiles.with_means(profile.rows)))
        try:
            self._daemon.change(content_id, {'profile': str(path)})
        finally:
            if not profile.shared:
                path.unlink(missing_ok=True)
        LOG.info('Image %s: prefetching by generation %d of profile %s, with'
                 ' %d chunks', image_id, profile.generation, profile.id,
                 len(profile.rows))

    def forget(self, contents: collections.abc.Collection[str]) -> None:
        """Remove profiles of contents that are in no catalogue any more.

        :param contents: those that are
        """
        if not self._folder.exists():
            return
        for path in self._folder.glob('*.json'):
            if path.stem not in contents:
                path.unlink(missing_ok=True)

    def _path(self, content_id: str) -> pathlib.Path:
        return self._folder / f'{content_id}.json'
