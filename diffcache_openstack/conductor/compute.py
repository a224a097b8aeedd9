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
"""Hosts of Nova's aggregates and availability zones."""

import collections.abc
import time
import typing

from oslo_config import cfg

from diffcache_openstack.cloud import nova
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import threads

# Operators change aggregates rarely.
_CACHE_SECONDS = 30.0


class Compute:
    """Reads from Nova with the service's credentials; answers are cached."""

    def __init__(self, conf: cfg.ConfigOpts):
        self._nova = nova.Nova(conf)
        self._reading = threads.KeyedLocks()
        self._answers: dict[str, tuple[float, list[nova.Document]]] = {}

    def hosts(self, aggregates: collections.abc.Iterable[str],
              zones: collections.abc.Iterable[str]) -> set[str]:
        """Return the hosts of aggregates and availability zones.

        :param aggregates: names or ids
        :raises NotFound: there is no such aggregate, or no host in a zone
        :raises ServiceUnavailable: Nova does not answer, or refuses
        """
        found: set[str] = set()
        for name in aggregates:
            found |= self._aggregate(name)
        for name in zones:
            found |= self._zone(name)
        return found

    def _aggregate(self, name):
        for entry in self._cached('aggregates', self._nova.aggregates):
            if name in (entry['name'], str(entry['id'])):
                return set(entry['hosts'])
        raise exceptions.NotFound(
            f'Nova has no aggregate {name}; see "openstack aggregate list".')

    def _zone(self, name):
        services = self._cached('services', self._nova.compute_services)
        found = {entry['host'] for entry in services
                 if entry['zone'] == name}
        if not found:
            raise exceptions.NotFound(
                f'Nova has no host in the availability zone {name}; see'
                f' "openstack availability zone list".')
        return found

    def _cached(self, key: str, read: typing.Callable[
            [], list[nova.Document]]) -> list[nova.Document]:
        with self._reading.of(key):
            when, answer = self._answers.get(key, (0.0, None))
            if answer is None or time.monotonic() - when > _CACHE_SECONDS:
                answer = _read(read)
                self._answers[key] = time.monotonic(), answer
            return answer


def _read(read):
    """Read from Nova; errors that an operator has to correct are retryable."""
    try:
        return read()
    except exceptions.PermanentError as error:
        raise exceptions.ServiceUnavailable(
            f'{error} Correct the options of [nova], or name hosts in place'
            f' of aggregates and zones.') from error
