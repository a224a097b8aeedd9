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
"""Volumes of Cinder, as a caller sees them."""

import dataclasses
import typing
import urllib.parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ksa_exceptions
from oslo_config import cfg
import requests

from diffcache_openstack.cloud import base
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import keystone
from diffcache_openstack.conf import cinder


_PROJECT = 'os-vol-tenant-attr:tenant_id'


@dataclasses.dataclass(frozen=True)
class Volume:
    """A volume of Cinder.

    :param project_id: None if the caller may not know it
    """

    id: str
    encrypted: bool
    multiattach: bool
    project_id: str | None = None

    @property
    def unsaveable(self) -> str | None:
        """Why it can be neither saved nor restored; None if it can."""
        if self.encrypted:
            return 'encrypted'
        return 'of a multiattach type' if self.multiattach else None


class Volumes(base.ServiceClient):
    """Reads volumes, at the endpoint of ``[cinder]``."""

    name = 'Cinder'
    errors = (ksa_exceptions.ClientException, requests.RequestException)

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__(conf, cinder.GROUP.name)

    def get(self, volume_id: str, context: contexts.RequestContext) -> Volume:
        """Return a volume, as the caller sees it.

        :raises Forbidden: Cinder shows the caller no such volume
        :raises Conflict: ``[cinder]`` does not suffice
        :raises ServiceUnavailable: Cinder does not answer
        """
        try:
            with self._call(f'show volume {volume_id}') as own:
                url = '/'.join((
                    _without_project(own), urllib.parse.quote(
                        context.project_id or '', safe=''),
                    'volumes', urllib.parse.quote(volume_id, safe='')))
                answer = own.get(
                    url, authenticated=False, raise_exc=False,
                    headers={'X-Auth-Token': context.auth_token or ''})
                return _volume(answer)
        except exceptions.NotConfigured as error:
            raise exceptions.Conflict(
                f'This cloud saves no volumes, since its API may not ask'
                f' Cinder ([cinder]): leave volume {volume_id} out'
                f' (--exclude-volume {volume_id}).') from error
        except (exceptions.NotFound, exceptions.Forbidden,
                exceptions.InvalidInput) as error:
            raise exceptions.Forbidden(
                f'You may not read volume {volume_id}, or Cinder has no such'
                f' volume: leave it out (--exclude-volume {volume_id}).'
            ) from error

    def get_as_service(self, volume_id: str) -> Volume:
        """Return a volume, as the user of ``[cinder]`` sees it.

        :raises PermanentError: ``[cinder]`` does not suffice, or Cinder shows
            its user no such volume
        :raises ServiceUnavailable: Cinder does not answer
        """
        with self._call(f'show volume {volume_id}') as own:
            return _volume(own.get(
                f'/volumes/{urllib.parse.quote(volume_id, safe="")}',
                raise_exc=False))

    def _connect(self, session: keystone.Session,
                 options: dict[str, typing.Any]) -> typing.Any:
        return adapter.Adapter(session, **options)


def _volume(answer: requests.Response) -> Volume:
    answer.raise_for_status()
    document = answer.json()['volume']
    return Volume(document['id'], bool(document['encrypted']),
                  bool(document.get('multiattach')),
                  document.get(_PROJECT))


def _without_project(own: adapter.Adapter) -> str:
    """Return the endpoint without the project that may end it."""
    # None without a catalogue entry; then the call fails.
    endpoint = (own.get_endpoint() or '').rstrip('/')
    return endpoint.removesuffix(f'/{own.get_project_id()}')
