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
"""QoS specs of volume types.

By requests of our own: openstacksdk of OpenStack 2026.1 and before has no
methods for them.
"""

import collections.abc
import dataclasses
import typing

from openstack import exceptions

_PATH = '/qos-specs'


@dataclasses.dataclass(frozen=True)
class Specs:
    """QoS specs, as Cinder describes them.

    :ivar consumer: ``front-end``, ``back-end`` or ``both``
    """

    id: str
    name: str
    consumer: str
    specs: dict[str, str]


@dataclasses.dataclass(frozen=True)
class VolumeType:
    """A volume type that has some QoS specs."""

    id: str
    name: str


class Client:
    """QoS specs of a cloud.

    Every method raises ``openstack.exceptions.HttpException`` if the request
    fails.

    :param storage: block storage of a connection of openstacksdk
    """

    def __init__(self, storage: typing.Any) -> None:
        self._storage = storage

    def all(self) -> collections.abc.Iterator[Specs]:
        """Yield all QoS specs."""
        query: dict[str, str] = {}
        while page := self._answer(self._storage.get(
                _PATH, params=query))['qos_specs']:
            yield from map(_parsed, page)
            query = {'marker': page[-1]['id']}

    def users(self, specs_id: str) -> list[VolumeType]:
        """Return the volume types that have some QoS specs."""
        found = self._answer(self._storage.get(
            f'{_PATH}/{specs_id}/associations'))['qos_associations']
        return [VolumeType(one['id'], one['name']) for one in found]

    def create(self, name: str, consumer: str, specs: dict[str, str]
               ) -> Specs:
        """Create QoS specs, of no type yet."""
        return _parsed(self._answer(self._storage.post(_PATH, json={
            'qos_specs': {**specs, 'name': name, 'consumer': consumer},
        }))['qos_specs'])

    def update(self, specs_id: str, specs: dict[str, str]) -> None:
        """Change values; others stay."""
        self._answer(self._storage.put(
            f'{_PATH}/{specs_id}', json={'qos_specs': specs}))

    def associate(self, specs_id: str, type_id: str) -> None:
        """Give a volume type QoS specs."""
        self._answer(self._storage.get(
            f'{_PATH}/{specs_id}/associate',
            params={'vol_type_id': type_id}))

    def delete(self, specs_id: str) -> None:
        """Delete QoS specs that no type has."""
        self._answer(self._storage.delete(f'{_PATH}/{specs_id}'))

    @staticmethod
    def _answer(response: typing.Any) -> dict[str, typing.Any]:
        exceptions.raise_from_response(response)
        return response.json() if response.content else {}


def _parsed(document: dict[str, typing.Any]) -> Specs:
    return Specs(document['id'], document['name'], document['consumer'],
                 document['specs'])
