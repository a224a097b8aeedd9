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
"""Listings in pages, with a link to the next one."""

import collections.abc
import typing
import urllib.parse

from diffcache_openstack.api import requests
from diffcache_openstack.db import listing


def document(request: requests.Request, name: str,
             part: listing.Part) -> dict[str, typing.Any]:
    """Return a page of a listing with the link of the API guidelines.

    :param name: of the listing, the key of its entries
    """
    answer: dict[str, typing.Any] = {name: part.entries}
    if part.next_marker is not None:
        query = dict(request.parameters, limit=request.page.limit,
                     marker=part.next_marker)
        answer[f'{name}_links'] = [
            {'rel': 'next', 'href': f'{request.base_url}?'
             + urllib.parse.urlencode(_texts(query), doseq=True)}]
    return answer


def listed(request: requests.Request, name: str,
           look: collections.abc.Callable[..., listing.Part],
           *of: typing.Any) -> dict[str, typing.Any]:
    """Return the page of a listing that a request asks for.

    :param look: reads it; called with a reader, ``of``, filters and page
    """
    return document(request, name, request.look(
        look, *of, request.filters(), request.page))


def _texts(query):
    return {name: str(value).lower() if isinstance(value, bool) else value
            for name, value in query.items()}
