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
"""Boot sets: the chunks that boots read, of images that are not here.

The conductor plans them for each host. The plan is kept on disk, and followed
while the conductor does not answer. The names of the images that diffcached
serves for their boot sets alone, and no server boots from, are kept as well.
"""

import collections.abc
import dataclasses
import hashlib
import json
import logging
import pathlib
import threading
import time
import typing

from diffcache_openstack.common import contexts
from diffcache_openstack.common import files
from diffcache_openstack.common import profile_files
from diffcache_openstack.objects import boot_set
from diffcache_openstack.prefetch import profiles
from diffcache_openstack.rpc import conductor_lazy_api

LOG = logging.getLogger(__name__)

# Characters of a message that are reported.
MESSAGE_LENGTH = 1000


@dataclasses.dataclass(frozen=True)
class PlannedBootSet:
    """A set that is planned for this host.

    :ivar bytes: of its chunks
    :ivar digest: of its profile; another one for other chunks
    """

    content_id: str
    image_id: str
    bytes: int
    digest: str


@dataclasses.dataclass(frozen=True)
class Standing:
    """What this host has of a set.

    :ivar held_bytes: that are here
    :ivar state: one of :data:`.boot_set.STATES`
    :ivar message: why it failed last
    """

    held_bytes: int = 0
    state: str = boot_set.WAITING
    message: str | None = None


class PlannedBootSets:
    """The sets of this host, kept in files.

    :param path: file that stores the sets planned for this host
    :param folder: for the profiles that diffcached is to use
    """

    def __init__(self, path: pathlib.Path, folder: pathlib.Path) -> None:
        self._path = path
        self._folder = folder
        self._lock = threading.Lock()
        kept = files.read_json(path) or {}
        self._generation: int | None = kept.get('generation')
        self._wanted = {each['content_id']: PlannedBootSet(**each)
                        for each in kept.get('wanted', ())}
        self._alone: dict[str, str] = kept.get('alone', {})
        # None until this host has looked at what is here.
        self._standing: dict[str, Standing] | None = None

    @property
    def generation(self) -> int | None:
        """Return the generation of the planned sets; None before the first."""
        return self._generation

    def wanted(self) -> dict[str, PlannedBootSet]:
        """Return the sets that are planned for this host, by content."""
        with self._lock:
            return dict(self._wanted)

    def profile(self, content_id: str) -> pathlib.Path:
        """Return the file of the profile of a set."""
        return self._folder / f'{content_id}.json'

    def replace(self, generation: int, sets: collections.abc.Iterable[
            conductor_lazy_api.BootSet]) -> None:
        """Replace the sets that are planned for this host."""
        self._folder.mkdir(parents=True, exist_ok=True)
        wanted = {}
        for each in sets:
            document = profile_files.document(
                profiles.CHUNK, profiles.with_means(each.rows))
            files.write_json(self.profile(each.content_id), document)
            wanted[each.content_id] = PlannedBootSet(
                each.content_id, each.image_id, each.bytes, _digest(document))
        with self._lock:
            self._generation, self._wanted = generation, wanted
            self._save()
        for path in self._folder.glob('*.json'):
            if path.stem not in wanted:
                path.unlink(missing_ok=True)

    # -- what diffcached serves for its set alone

    def alone(self) -> dict[str, str]:
        """Return contents served for their sets alone, with the digests."""
        with self._lock:
            return dict(self._alone)

    def note_alone(self, content_id: str, digest: str) -> None:
        """Note that a content is about to be served for its set alone."""
        self._set_alone({**self._alone, content_id: digest})

    def forget_alone(self, content_id: str) -> None:
        """Note that a server uses a content, or that it is not served."""
        self._set_alone({each: digest for each, digest in self._alone.items()
                         if each != content_id})

    def _set_alone(self, alone: dict[str, str]) -> None:
        with self._lock:
            if alone != self._alone:
                self._alone = alone
                self._save()

    def _save(self) -> None:
        files.write_json(self._path, {
            'generation': self._generation,
            'wanted': [dataclasses.asdict(each)
                       for _content_id, each in sorted(self._wanted.items())],
            'alone': self._alone})

    # -- what is reported

    def note(self, standing: dict[str, Standing]) -> bool:
        """Note what this host has; return whether it was another before."""
        with self._lock:
            is_news = self._standing is None or (
                _outcomes(standing) != _outcomes(self._standing))
            self._standing = standing
            return is_news

    def report(self) -> list[tuple[str, int, str, str | None]] | None:
        """Return content, bytes, state and message of each set.

        :returns: None while this host has not looked at what is here
        """
        with self._lock:
            if self._standing is None:
                return None
            return [(content_id, each.held_bytes, each.state,
                     each.message and each.message[:MESSAGE_LENGTH])
                    for content_id, each in sorted(self._standing.items())]


def _outcomes(standing):
    """Return what is reported at once; bytes wait for the next heartbeat."""
    return {content_id: (each.state, each.message)
            for content_id, each in standing.items()}


def _digest(document: dict[str, typing.Any]) -> str:
    return hashlib.sha256(
        json.dumps(document, sort_keys=True).encode()).hexdigest()


class BootSetExchange:
    """Reports the sets of this host, and gets those that are planned for it.

    :param host: name of this host
    :param sets: of this host
    :param conductor: RPC client
    :param on_change: called when other sets are planned
    :param interval: seconds between two exchanges without news
    """

    def __init__(self, host: str, sets: PlannedBootSets,
                 conductor: conductor_lazy_api.LazyAPI,
                 on_change: collections.abc.Callable[[], object],
                 interval: float) -> None:
        self._host = host
        self._sets = sets
        self._conductor = conductor
        self._on_change = on_change
        self._interval = interval
        self._reported: list | None = None
        self._reported_at = 0.0

    def repeat(self) -> None:
        """Report again: the conductor may have forgotten."""
        self._reported = None

    def exchange(self, ctxt: contexts.RequestContext) -> None:
        """Exchange, if there is news or it is time.

        :raises DiffCacheError: the conductor does not answer, or refuses
        """
        report, now = self._sets.report(), time.monotonic()
        if report is None:
            return
        if report == self._reported \
                and now < self._reported_at + self._interval:
            return
        found = self._conductor.exchange_boot_sets(
            ctxt, self._host, report, self._sets.generation)
        self._reported, self._reported_at = report, now
        if found is not None:
            generation, sets = found
            try:
                self._sets.replace(generation, sets)
            except OSError as error:
                LOG.warning('Could not store the boot sets that are planned'
                            ' for this host, will retry: %s; check the disk of'
                            ' [agent] state_dir', error)
                self._reported = None
                return
            LOG.info('The plan has %d boot sets with %d bytes for this host',
                     len(sets), sum(each.bytes for each in sets))
            self._on_change()
