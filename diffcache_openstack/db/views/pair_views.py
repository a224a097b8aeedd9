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
"""Pairs of contents that patches are considered for, as users see them."""

import collections.abc
import functools
import typing

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db.views import image_views

_SHOWN = ('base', 'target', 'state', 'size', 'attempts', 'host', 'terms',
          'reason')


def list_pairs(session: listing.Reader,
               filters: collections.abc.Mapping[str, typing.Any],
               page: listing.Page) -> listing.Part:
    """List pairs by the contents of base and target.

    :param filters: base and target, each an image's id or a content's, and
        state
    :raises InvalidInput: the marker is not the id of a pair
    """
    table = models.PatchPair
    query = listing.narrowed(_pairs(), table, filters, ['state'])
    for name in ('base', 'target'):
        if name in filters:
            query = query.where(getattr(table, name).in_(
                image_views.contents_named(session, [filters[name]])))
    return listing.part_by_keys(session, query, (table.base, table.target),
                                page)


@functools.cache
def _pairs():
    table = models.PatchPair
    return sa.select(listing.joined_id(table.base, table.target),
                     *listing.columns(table, _SHOWN),
                     table.free_at.label('retry_at'))
