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
"""Which hosts Nova's aggregates and availability zones have."""

import collections.abc
import threading
import time
import typing

from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone
from diffcache_openstack.conf import nova

# Aggregates change when people change them.
_KEPT_SECONDS = 30.0


class Compute:
    """Asks Nova, with the service's own rights, and keeps answers a while."""

    def __init__(self, conf: cfg.ConfigOpts):
        self._nova = keystone.Service(conf, nova.GROUP.name)
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, typing.Any]] = {}

    def hosts(self, aggregates: collections.abc.Iterable[str],
              zones: collections.abc.Iterable[str]) -> set[str]:
        """Names of the hosts of aggregates and availability zones.

        :param aggregates: names or ids
        :raises NotFound: there is no such aggregate, or no host in a zone
        :raises ServiceUnavailable: Nova cannot be asked
        """
        found: set[str] = set()
        for name in aggregates:
            found |= self._aggregate(name)
        for name in zones:
            found |= self._zone(name)
        return found

    def _aggregate(self, name):
        for entry in self._ask('/os-aggregates', 'aggregates'):
            if name in (entry['name'], str(entry['id'])):
                return set(entry['hosts'])
        raise exceptions.NotFound(
            f'Nova has no aggregate {name}; see "openstack aggregate list".')

    def _zone(self, name):
        services = self._ask('/os-services?binary=nova-compute', 'services')
        found = {entry['host'] for entry in services
                 if entry['zone'] == name}
        if not found:
            raise exceptions.NotFound(
                f'Nova has no host in the availability zone {name}; see'
                f' "openstack availability zone list".')
        return found

    def _ask(self, path, key):
        with self._lock:
            when, answer = self._answers.get(path, (0.0, None))
            if answer is None or time.monotonic() - when > _KEPT_SECONDS:
                answer = self._get(path)[key]
                self._answers[path] = time.monotonic(), answer
            return answer

    def _get(self, path):
        try:
            return self._nova.adapter().get(path).json()
        except (ksa_exceptions.ClientException, ValueError,
                exceptions.InvalidInput) as error:
            raise exceptions.ServiceUnavailable(
                f'Nova was not asked for {path}: {error}; check the options'
                f' [nova] and that Nova runs, or name hosts.') from error
