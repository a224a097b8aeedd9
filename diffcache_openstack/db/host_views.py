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
"""Hosts as listings show them."""

import collections.abc
import functools
import typing

import sqlalchemy as sa

from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack.db import sites
from diffcache_openstack import objects

_SHOWN = ('name', 'site', 'role', 'alive', 'capacity', 'plan_generation',
          'seen_at')
_COLUMNS = ('site', 'role', 'alive')


def list_hosts(session: listing.Reader,
               filters: collections.abc.Mapping[str, typing.Any],
               page: listing.Page) -> listing.Part:
    """Hosts by name, with how full they are.

    :param filters: site, role, alive, and holds: the id of an object
    """
    table = models.Host
    query = listing.narrowed(
        sa.select(table.id, *listing.columns(table, _SHOWN)), table, filters,
        _COLUMNS)
    if 'holds' in filters:
        query = query.where(table.id.in_(
            sa.select(models.Holding.host_id).where(
                models.Holding.object_id == filters['holds'])))
    part = listing.part_by_key(session, query, table.name, page)
    _add_fill(session, part.entries)
    return part


def get_host(session: listing.Reader, name: str) -> listing.Entry:
    """One host, as :func:`list_hosts` shows it.

    :raises NotFound: the host is not registered
    """
    table = models.Host
    row = session.execute(
        sa.select(table.id, *listing.columns(table, _SHOWN)).where(
            table.name == name)).mappings().one_or_none()
    if row is None:
        raise sites.unknown_host(name)
    entry = listing.plain(row)
    _add_fill(session, [entry])
    return entry


def list_objects(session: listing.Reader, name: str,
                 filters: collections.abc.Mapping[str, typing.Any],
                 page: listing.Page) -> listing.Part:
    """What a host holds, by id, with the images that have that content.

    :param filters: kind
    :raises NotFound: the host is not registered
    """
    held = models.Holding
    host_id = session.scalar(sa.select(models.Host.id).where(
        models.Host.name == name))
    if host_id is None:
        raise sites.unknown_host(name)
    query = listing.narrowed(
        sa.select(held.object_id.label('id'), held.kind, held.bytes).where(
            held.host_id == host_id), held, filters, ('kind',))
    if page.marker is not None:
        query = query.where(held.object_id > page.marker)
    rows = session.execute(query.order_by(held.object_id, held.kind).limit(
        page.limit + 1)).mappings().all()
    part = listing.cut(rows, page, 'id')
    _add_templates(session, part.entries)
    return part


def _add_templates(session, entries):
    """Name the images whose content is held."""
    table = models.Template
    rows = session.execute(
        sa.select(table.content_id, table.id).where(table.content_id.in_(
            [entry['id'] for entry in entries])).order_by(table.id))
    images: dict[str, list[str]] = {}
    for content_id, template_id in rows:
        images.setdefault(content_id, []).append(template_id)
    for entry in entries:
        entry['templates'] = (images.get(entry['id'], [])
                              if entry['kind'] != objects.PATCHES else [])


def _add_fill(session, entries):
    """Add what hosts hold, and how much of their plan that is."""
    held = _held(session, [entry['id'] for entry in entries])
    wanted = _wanted(session, [entry['name'] for entry in entries])
    for entry in entries:
        count, size = held.get(entry.pop('id'), (0, 0))
        entry['held'] = {'objects': count, 'bytes': size}
        entry['plan'] = dict(zip(
            ('objects', 'bytes', 'held_objects', 'held_bytes'),
            wanted.get(entry['name'], (0, 0, 0, 0))))


def _held(session, host_ids):
    rows = session.execute(_held_query(), {'ids': host_ids})
    return {host_id: (count, int(size)) for host_id, count, size in rows}


def _wanted(session, names):
    """By host: objects and bytes of the plan in force, and those held."""
    rows = session.execute(_wanted_query(), {'names': names})
    return {host: tuple(int(number) for number in numbers)
            for host, *numbers in rows}


# Made once: a hundred values in a query cost more than asking it.
@functools.cache
def _held_query():
    table = models.Holding
    return (sa.select(table.host_id, sa.func.count(),
                      sa.func.sum(table.bytes))
            .where(table.host_id.in_(sa.bindparam('ids', expanding=True)))
            .group_by(table.host_id))


@functools.cache
def _wanted_query():
    item, held = models.PlanItem, models.Holding
    present = sa.case((held.object_id.is_not(None), 1), else_=0)
    return (
        sa.select(item.host, sa.func.count(), sa.func.sum(item.bytes),
                  sa.func.sum(present), sa.func.sum(present * item.bytes))
        .select_from(item)
        .join(models.Plan, models.Plan.id == item.plan_id)
        .join(models.Site, sa.and_(
            models.Site.name == models.Plan.site,
            models.Site.plan_generation == models.Plan.generation))
        .join(models.Host, models.Host.name == item.host)
        .outerjoin(held, sa.and_(
            held.host_id == models.Host.id, held.kind == item.kind,
            held.object_id == item.object_id))
        .where(item.host.in_(sa.bindparam('names', expanding=True)))
        .group_by(item.host))
