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
"""Hydrations of images that are served while they arrive.

diffcached keeps mode, deadline and rate of each. Kept here is what it does not
know: the generation of these settings, and what a paused one returns to.
Servers of one image on this host share its hydration.
"""

import collections.abc
import dataclasses
import datetime
import logging
import pathlib
import threading
import time
import typing

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_boot_sets
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack import objects
from diffcache_openstack.objects import hydration

LOG = logging.getLogger(__name__)

# What a deadline that passed while it was paused leaves.
_LEAST_SECONDS = 1.0
# Servers are reported for this long after their image has arrived and is no
# longer served; a client that waits for it sees that it is whole.
SHOWN_SECONDS = 60.0

Settings = collections.abc.Mapping[str, typing.Any]


@dataclasses.dataclass(frozen=True)
class HydrationRecord:
    """What is kept of a hydration.

    :ivar paused: the mode that it returns to; None if it is not paused
    :ivar deadline_at: seconds since 1970; None without a deadline
    :ivar rates: by server what it is to have, bytes per second, None for no
        limit; one that is not there has that of the host
    """

    generation: int = 0
    paused: str | None = None
    deadline_at: float | None = None
    rates: dict[str, int | None] = dataclasses.field(default_factory=dict)


class Hydrations:
    """Reports and changes hydrations.

    :param daemon: serves the images
    :param servers: that use them
    :param path: of the file with the records
    :param rate: of the host, bytes per second, which no server's wish
        exceeds; 0 for no limit
    """

    def __init__(self, daemon: diffcached.Diffcached,
                 servers: lazy_servers.Servers,
                 path: pathlib.Path, rate: int = 0) -> None:
        self._rate = rate or None
        self._daemon = daemon
        self._servers = servers
        self._path = path
        self._lock = threading.Lock()
        self._records = {content_id: HydrationRecord(**document)
                         for content_id, document
                         in (files.read_json(path) or {}).items()}
        # By server: until when it is shown.
        self._arrived: dict[str, tuple[float, objects.Hydration]] = {}

    def collect(self) -> list[objects.Hydration]:
        """Return the hydration of each server whose image is served.

        Those whose image has arrived are among them for a while longer.

        :raises ServiceUnavailable: diffcached does not answer
        """
        with self._lock:
            # What is added meanwhile must not seem to be gone.
            served = {each['content_id']: each
                      for each in self._daemon.images()}
            self._forget(self._records.keys() - served.keys())
            found: dict[str, objects.Hydration] = {}
            for content_id, status in served.items():
                for server in self._servers.of(content_id):
                    each = self._describe(server, status)
                    known = found.get(server.id)
                    # One that is rescued has two images.
                    if known is None or known.state == hydration.COMPLETE:
                        found[server.id] = each
            return list({**self._shown(), **found}.values())

    def note_arrived(self, status: diffcached.Document) -> None:
        """Note that an image is whole and about to be served no more.

        :param status: that diffcached has of it last
        """
        with self._lock:
            until = time.monotonic() + SHOWN_SECONDS
            for server in self._servers.of(status['content_id']):
                self._arrived[server.id] = (until,
                                            self._describe(server, status))

    def remove_server(self, server_id: str,
                      contents: collections.abc.Iterable[str]) -> None:
        """Note that a server is no longer on this host.

        :param contents: that it used; their other servers share a rate
        """
        with self._lock:
            self._arrived.pop(server_id, None)
            for content_id in contents:
                try:
                    self._leave(content_id, server_id)
                except exceptions.DiffCacheError as error:
                    LOG.warning('Could not change the rate of content %s,'
                                ' which server %s has left: %s', content_id,
                                server_id, error)

    def change(self, server_id: str, generation: int, settings: Settings
               ) -> objects.Hydration:
        """Change the hydration of a server's image.

        :param generation: of the settings that the caller has seen
        :param settings: ``deadline``, seconds from now or None for none;
            ``rate``, bytes per second or None for no limit; ``paused``
        :returns: the hydration as it is then
        :raises NotFound: the server runs from no image that is arriving
        :raises Conflict: the image is whole
        :raises Busy: the settings were changed since
        :raises ServiceUnavailable: diffcached does not answer
        """
        with self._lock:
            server, status = self._find(server_id)
            record = self._record(status)
            if record.generation != generation:
                raise exceptions.Busy(
                    f'The hydration of server {server_id} was changed since:'
                    f' its generation is {record.generation}; read it and try'
                    f' again.')
            # The record that is kept here has the settings before.
            if 'rate' in settings:
                self._note_rates(status, dict.fromkeys(
                    (each.id for each
                     in self._servers.of(status['content_id'])),
                    settings['rate']))
            self._apply(status, settings)
            return self._describe(server,
                                  self._daemon.image(status['content_id']))

    def wish(self, content_id: str, server_id: str, wish: lazy_servers.Wish
             ) -> None:
        """Consider what a new server was created with.

        Of several servers of an image the earliest deadline counts, and the
        highest rate. A server that wishes none is to have that of the host,
        and none has more.

        :raises NotFound: the image is not served
        :raises ServiceUnavailable: diffcached does not answer
        """
        with self._lock:
            status = self._daemon.image(content_id)
            if _state(status) != hydration.ARRIVING:
                return
            if wish.rate is not None:
                self._note_rates(status, {
                    **self._record(status).rates,
                    server_id: limit(wish.rate, self._rate)})
            others = [server for server in self._servers.of(content_id)
                      if server.id != server_id]
            settings = self._rate_settings(status)
            if wish.seconds is not None and (
                    not others or self._is_sooner(status, wish.seconds)):
                settings['deadline'] = wish.seconds
            if settings:
                self._apply(status, settings)
                LOG.info('Hydrating image content %s for server %s: %s',
                         content_id, server_id, settings)

    # -- inside; the lock is held

    def _shown(self) -> dict[str, objects.Hydration]:
        """Return what has arrived a short time ago, by server."""
        now = time.monotonic()
        self._arrived = {server_id: (until, each) for server_id, (until, each)
                         in self._arrived.items() if until > now}
        return {server_id: each for server_id, (_until, each)
                in self._arrived.items()}

    def _find(self, server_id: str
              ) -> tuple[lazy_servers.LazyServer, diffcached.Document]:
        found = [(server, status) for status in self._daemon.images()
                 for server in self._servers.of(status['content_id'])
                 if server.id == server_id]
        for server, status in found:
            if _state(status) == hydration.ARRIVING:
                return server, status
        is_whole = server_id in self._shown() if not found \
            else _state(found[0][1]) == hydration.COMPLETE
        if is_whole:
            raise exceptions.Conflict(
                f'The image of server {server_id} has arrived whole.')
        if not found:
            raise exceptions.NotFound(
                f'Server {server_id} runs from no image that is arriving on'
                f' this host.')
        raise exceptions.ServiceUnavailable(
            f'What serves the image of server {server_id} does not answer:'
            f' {found[0][1].get("error")}')

    def _is_sooner(self, status: diffcached.Document, seconds: float) -> bool:
        """Return whether a deadline is before that of other servers."""
        now = time.time()
        return (self._mode(status) != hydration.DEADLINE or now + seconds
                < (self._record(status).deadline_at or now))

    def _rate_settings(self, status: diffcached.Document
                       ) -> dict[str, typing.Any]:
        """Return the rate that servers of an image share, if it is another.

        One that is to have no limit keeps others from being limited.
        """
        record = self._record(status)
        rates = [record.rates.get(server.id, self._rate)
                 for server in self._servers.of(status['content_id'])]
        shared = None if None in rates else max(filter(None, rates),
                                                default=self._rate)
        return {} if shared == status['hydration']['rate'] \
            else {'rate': shared}

    def _note_rates(self, status: diffcached.Document,
                    rates: dict[str, int | None]) -> None:
        self._keep(status['content_id'], dataclasses.replace(
            self._record(status), rates=rates))

    def _leave(self, content_id: str, server_id: str) -> None:
        """Have the servers that are left of an image share its rate."""
        if not self._servers.of(content_id):
            return
        status = self._daemon.image(content_id)
        if _state(status) != hydration.ARRIVING:
            return
        rates = self._record(status).rates
        self._note_rates(status, {
            each: rate for each, rate in rates.items() if each != server_id})
        settings = self._rate_settings(status)
        if settings:
            self._apply(status, settings)

    def _apply(self, status: diffcached.Document, settings: Settings) -> None:
        content_id = status['content_id']
        before = self._record(status)
        mode, deadline_at = self._mode(status), before.deadline_at
        if 'deadline' in settings:
            mode, deadline_at = _timed(settings['deadline'])
        paused = settings.get('paused', before.paused is not None)
        changed: diffcached.Document = {}
        if 'rate' in settings:
            changed['rate'] = settings['rate']
        if 'deadline' in settings or paused != (before.paused is not None):
            changed['hydrate'] = hydration.NONE if paused \
                else _hydrate(mode, deadline_at)
        # Before diffcached forgets the mode; that of a record is used only
        # while diffcached fetches nothing.
        self._keep(content_id, dataclasses.replace(
            before, generation=before.generation + 1,
            paused=mode if paused else None, deadline_at=deadline_at))
        try:
            if changed:
                self._daemon.change(content_id, changed)
        except exceptions.DiffCacheError:
            self._keep(content_id, before)
            raise

    def _record(self, status: diffcached.Document) -> HydrationRecord:
        record = self._records.get(status['content_id'], HydrationRecord())
        if status.get('hydration', {}).get('mode') != hydration.NONE:
            return dataclasses.replace(record, paused=None)
        return record

    def _mode(self, status: diffcached.Document) -> str:
        mode = self._record(status).paused or status['hydration']['mode']
        # What a boot set fetches is over when its image is hydrated.
        return hydration.NONE if mode == lazy_boot_sets.PROFILE else mode

    def _describe(self, server: lazy_servers.LazyServer,
                  status: diffcached.Document) -> objects.Hydration:
        known = {'server_id': server.id, 'image_id': server.image_id,
                 'content_id': status['content_id'], 'state': _state(status)}
        if known['state'] == hydration.UNKNOWN:
            return objects.Hydration(**known)
        record, mode = self._record(status), self._mode(status)
        plan, now = status['hydration'], time.time()
        deadline_at = None
        if mode == hydration.DEADLINE:
            deadline_at = record.deadline_at if record.paused \
                else _moment(plan, 'deadline_s', now) or record.deadline_at
        return objects.Hydration(
            **known, mode=mode, paused=record.paused is not None,
            deadline_at=_instant(deadline_at),
            expected_at=_instant(_moment(plan, 'earliest_s', now)),
            kept=plan['kept'], generation=record.generation,
            rate=None if plan['rate'] is None else round(plan['rate']),
            measured_rate=plan['measured_rate'],
            remaining_bytes=plan['remaining_bytes'],
            chunks=status['data_chunks'], sources=_sources(status),
            **{name: status[name] for name in (
                'chunk', 'present', 'bytes_fetched', 'misses', 'stall_ms')})

    def _forget(self, contents: collections.abc.Collection[str]) -> None:
        if contents:
            self._records = {
                content_id: record for content_id, record
                in self._records.items() if content_id not in contents}
            self._save()

    def _keep(self, content_id: str, record: HydrationRecord) -> None:
        self._records[content_id] = record
        self._save()

    def _save(self) -> None:
        files.write_json(self._path, {
            content_id: dataclasses.asdict(record)
            for content_id, record in self._records.items()})


def limit(rate: int | None, most: int | None) -> int | None:
    """Return the lower one of two rates, of which 0 and None are no limit."""
    return min(filter(None, (rate, most)), default=None)


def _timed(seconds: float | None) -> tuple[str, float | None]:
    """Return mode and deadline for a number of seconds from now."""
    if seconds is None:
        return hydration.IDLE, None
    return hydration.DEADLINE, time.time() + seconds


def _hydrate(mode: str, deadline_at: float | None) -> typing.Any:
    """Return a mode as diffcached takes it."""
    if mode != hydration.DEADLINE or deadline_at is None:
        return mode
    return {'seconds': max(deadline_at - time.time(), _LEAST_SECONDS)}


def _state(status: diffcached.Document) -> str:
    if 'error' in status:
        return hydration.UNKNOWN
    return hydration.COMPLETE if status['complete'] else hydration.ARRIVING


def _moment(plan: diffcached.Document, name: str, now: float) -> float | None:
    """Return a time of a plan in seconds since 1970; None if it has none."""
    if plan.get(name) is None:
        return None
    return now + plan[name] - plan['elapsed_s']


def _instant(seconds: float | None) -> datetime.datetime | None:
    """Return a time to the second: more would differ in each report."""
    if seconds is None:
        return None
    try:
        return datetime.datetime.fromtimestamp(round(seconds), datetime.UTC)
    except (OverflowError, ValueError):
        return None  # At such a rate it does not become whole.


def _sources(status: diffcached.Document) -> list[objects.HydrationSource]:
    return [objects.HydrationSource(**{
        name: each[name] for name in ('url', 'requests', 'bytes', 'failures')})
        for each in status['sources']][:hydration.MOST_SOURCES]
