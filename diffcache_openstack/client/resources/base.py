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
"""What all resources have in common."""

import typing
import urllib.parse

from openstack import exceptions
from openstack import resource
from openstack import utils

MAX_MICROVERSION = '1.0'

_FILTERS_OF_PAGES = ('limit', 'marker')


def part(name: str) -> str:
    """Return a name or id as a part of a path.

    :raises InvalidRequest: it cannot be one; the path would lead elsewhere
    """
    if name in ('', '.', '..') or '/' in name:
        raise exceptions.InvalidRequest(
            f'"{name}" is no name or ID of anything here; list what there'
            f' is.')
    return urllib.parse.quote(name, safe='')


def query(*names: str) -> resource.QueryParameters:
    """Return the filters of a listing, with those of paging."""
    return resource.QueryParameters(
        *(name for name in names if name not in _FILTERS_OF_PAGES))


class Resource(resource.Resource):
    """A resource of the service.

    :cvar label: what messages call it
    """

    label = 'It'
    _max_microversion = MAX_MICROVERSION
    allow_list = True
    allow_fetch = True
    commit_method = 'PATCH'

    @classmethod
    def _get_next_link(cls, uri: str, response: typing.Any, data: typing.Any,
                       marker: str | None, limit: typing.Any,
                       total_yielded: int) -> typing.Any:
        """Return the link of the next page, which the service always sends.

        Without one the library requests another page if there is a limit.
        """
        return super()._get_next_link(uri, response, data, marker, None,
                                      total_yielded)

    @classmethod
    def microversion_of(cls, session: typing.Any) -> str | None:
        """Return the version of the service's interface to request.

        The library's own method has other parameters in openstacksdk before
        4.5.
        """
        return (session.default_microversion
                or utils.maximum_supported_microversion(
                    session, cls._max_microversion))

    def change(self, session: typing.Any, values: dict[str, typing.Any]
               ) -> typing.Any:
        """Change some fields, unless they were changed since it was read.

        :raises ConflictException: they were
        """
        response = session.patch(
            f'{self.base_path}/{self.id}', json={self.resource_key: {
                **values, 'generation': self.generation}},
            microversion=self.microversion_of(session))
        self._translate_response(response)
        return self

    def act(self, session: typing.Any, action: str,
            body: dict[str, typing.Any] | None = None) -> typing.Any:
        """Call an action on it, and take over its new state."""
        response = session.post(
            f'{self.base_path}/{self.id}/{action}', json=body or {},
            microversion=self.microversion_of(session))
        self._translate_response(response)
        return self
