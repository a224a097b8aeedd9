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
"""What the tests of the API share."""

import time
import typing

from tempest import config
from tempest.lib import exceptions
from tempest import test

from diffcache_openstack.tempest_plugin.services import diffcache_client

CONF = config.CONF
UNKNOWN = '5b1d7d3e-0000-4000-8000-a7a36e7a4f10'
_POLL = 1.0
# Fields that identify entries of listings, where that is not ``id``.
_KEYS = {'hosts': 'name', 'hydrations': 'server_id',
         'lookups': 'host', 'sites': 'name',
         'ssd_caches': 'host'}


class ApiTest(test.BaseTestCase):
    """Talks to the API as an administrator and as members of two projects."""

    credentials = ['admin', 'primary', 'alt', 'project_reader']

    @classmethod
    def skip_checks(cls) -> None:
        """Skip where the suite is not."""
        super().skip_checks()
        if not CONF.service_available.diffcache:
            raise cls.skipException('the cloud has no DiffCache')

    @classmethod
    def setup_credentials(cls) -> None:
        """Create users without networks, which no test needs.

        A network comes with a router, which a cloud without L3 refuses.
        """
        cls.set_network_resources()
        super().setup_credentials()

    @classmethod
    def setup_clients(cls) -> None:
        """Create a client for each user."""
        super().setup_clients()
        cls.admin = cls.client_of(cls.os_admin)
        cls.member = cls.client_of(cls.os_primary)
        cls.other = cls.client_of(cls.os_alt)
        cls.reader = cls.client_of(cls.os_project_reader)

    @classmethod
    def client_of(cls, manager: typing.Any
                  ) -> diffcache_client.DiffCacheClient:
        """Create a client with the login of a manager."""
        return diffcache_client.DiffCacheClient(
            manager.auth_provider, diffcache_client.SERVICE,
            CONF.identity.region)

    def compute_host(self) -> dict[str, typing.Any]:
        """Return a living compute host with a cache; skip if there is none."""
        hosts = self.admin.fetch('hosts', role='compute',
                                 alive='true')['hosts']
        if not hosts:
            raise self.skipException('no compute host has an agent')
        return hosts[0]

    def some_image(self) -> dict[str, typing.Any]:
        """Return an image of the catalogue; skip if there is none."""
        found = self.admin.fetch('images', status='active')['images']
        if not found:
            raise self.skipException('the catalogue is empty')
        return found[0]

    def assert_paged(self, path: str, name: str, **query: typing.Any
                     ) -> None:
        """Check that a listing in parts equals the whole listing.

        In a cloud in use, what changes meanwhile is listed anew.
        """
        deadline = time.monotonic() + CONF.diffcache.timeout
        before, whole = None, self._whole(path, name, query)
        while before != whole:
            if time.monotonic() > deadline:
                raise exceptions.TimeoutException(
                    f'{path}: changes with each request')
            found = self._in_parts(path, name, query, len(whole))
            before, whole = whole, self._whole(path, name, query)
        self.assertEqual(whole, found[:len(whole)])

    def _whole(self, path: str, name: str, query: dict[str, typing.Any]
               ) -> list[str]:
        return _keys(self.admin.fetch(path, **query), name)

    def _in_parts(self, path: str, name: str, query: dict[str, typing.Any],
                  length: int) -> list[str]:
        """List one entry by one, and one more than the length at most."""
        found: list[str] = []
        marker: dict[str, str] = {}
        while True:
            part = self.admin.fetch(path, limit=1, **marker, **query)
            found += _keys(part, name)
            if f'{name}_links' not in part or len(found) > length:
                return found
            marker = {'marker': found[-1]}

    def wait_for(self, path: str, name: str, field: str, value: str
                 ) -> dict[str, typing.Any]:
        """Wait until a field of a resource has a value."""
        deadline = time.monotonic() + CONF.diffcache.timeout
        while True:
            found = self.admin.fetch(path)[name]
            if found[field] == value:
                return found
            if time.monotonic() > deadline:
                raise exceptions.TimeoutException(
                    f'{path}: {field} is {found[field]}, not {value}')
            time.sleep(_POLL)


def _keys(listing: dict[str, typing.Any], name: str) -> list[str]:
    """Return what identifies the entries of a listing."""
    key = _KEYS.get(name, 'id')
    return [each[key] for each in listing[name]]
