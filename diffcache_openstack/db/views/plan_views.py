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
"""Plans and proposals as listings show them."""

import collections.abc
import json
import typing

import sqlalchemy as sa

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack import objects

_SHOWN = ('uuid', 'site', 'state', 'generation', 'base_generation', 'solver',
          'cost_s', 'lower_bound_s', 'proved_optimal', 'solver_seconds',
          'created_at', 'changes', 'error', 'objective', *objects.PLAN_FIGURES)
# Plans without a result.
_EMPTY = ('computing', 'failed')
CURRENT = 'current'
SUPERSEDED = 'superseded'


def list_plans(session: listing.Reader,
               filters: collections.abc.Mapping[str, typing.Any],
               page: listing.Page) -> listing.Part:
    """List plans and proposals, the latest first.

    :param filters: site, state
    """
    query = listing.narrowed(_plans(), models.Plan, filters, ('site',))
    if 'state' in filters:
        query = query.where(_in_state(filters['state']))
    since = _marked(session, page)
    if since is not None:
        query = query.where(models.Plan.id < since)
    rows = session.execute(query.order_by(models.Plan.id.desc()).limit(
        page.limit + 1)).mappings().all()
    entries = [_entry(row) for row in rows[:page.limit]]
    more = len(rows) > page.limit
    return listing.Part(entries, entries[-1]['id'] if more else None)


def get_plan(session: listing.Reader, plan_id: str) -> listing.Entry:
    """Return a plan, as :func:`list_plans` does, with hosts and items.

    :raises NotFound: there is none with that id
    """
    row = session.execute(_plans().where(
        models.Plan.uuid == plan_id)).mappings().one_or_none()
    if row is None:
        raise unknown_plan(plan_id)
    entry = _entry(row)
    entry['hosts'] = list(session.scalars(
        sa.select(models.PlanHost.host).where(
            models.PlanHost.plan_id == row['id'])
        .order_by(models.PlanHost.host)))
    entry['items'] = _items(session, row['id'])
    return entry


def current_fill(session: listing.Reader, site: str) -> listing.Entry | None:
    """Return the current plan of a site, and how much of it is held."""
    plan, item, held = models.Plan, models.PlanItem, models.Holding
    row = session.execute(_plans().where(
        plan.site == site, _in_state(CURRENT))).mappings().one_or_none()
    if row is None:
        return None
    present = sa.case((held.object_id.is_not(None), 1), else_=0)
    numbers = session.execute(
        sa.select(sa.func.count(), sa.func.sum(item.bytes),
                  sa.func.sum(present), sa.func.sum(present * item.bytes))
        .select_from(item)
        .outerjoin(models.Host, models.Host.name == item.host)
        .outerjoin(held, sa.and_(
            held.host_id == models.Host.id, held.kind == item.kind,
            held.object_id == item.object_id))
        .where(item.plan_id == row['id'])).one()
    entry = _entry(row)
    fill = dict(zip(('objects', 'bytes', 'held_objects', 'held_bytes'),
                    (int(number or 0) for number in numbers)))
    return {**{name: entry[name] for name in
               ('id', 'generation', 'cost_s', 'lower_bound_s',
                'proved_optimal', 'created_at')}, **fill}


def unknown_plan(plan_id: str) -> exceptions.NotFound:
    """Return the error for a plan that does not exist."""
    return exceptions.NotFound(
        f'Plan {plan_id} is unknown; see "openstack image cache plan list"'
        f' for those that are kept.')


def _plans():
    table = models.Plan
    return sa.select(
        table.id, *listing.columns(table, _SHOWN),
        (models.Site.plan_generation == table.generation).label('in_force'),
    ).join(models.Site, models.Site.name == table.site)


def _in_state(state):
    table = models.Plan
    in_force = sa.and_(table.generation.is_not(None),
                       models.Site.plan_generation == table.generation)
    if state == CURRENT:
        return in_force
    if state == SUPERSEDED:
        return sa.and_(table.state == 'applied', sa.not_(in_force))
    return table.state == state


def _marked(session, page):
    if page.marker is None:
        return None
    number = session.scalar(sa.select(models.Plan.id).where(
        models.Plan.uuid == page.marker))
    if number is None:
        raise exceptions.InvalidInput(
            f'The marker {page.marker} names no plan; begin again without'
            f' one.')
    return number


def _entry(row):
    entry = listing.plain(row)
    entry['id'] = entry.pop('uuid')
    entry['changes'] = json.loads(entry['changes'])
    if entry.pop('in_force'):
        entry['state'] = CURRENT
    elif entry['state'] == 'applied':
        entry['state'] = SUPERSEDED
    cost, bound = entry['cost_s'], entry['lower_bound_s']
    entry['gap'] = max(0.0, 1 - bound / cost) if cost > 0 else 0.0
    if entry['state'] in _EMPTY:
        entry.update(cost_s=None, lower_bound_s=None, gap=None)
    return entry


def _items(session, plan_number):
    item, held = models.PlanItem, models.Holding
    rows = session.execute(
        sa.select(item.host, item.kind, item.object_id.label('id'),
                  item.bytes, item.priority, item.saved_seconds,
                  held.object_id.is_not(None).label('held'),
                  models.Patch.base, models.Patch.target)
        .select_from(item)
        .outerjoin(models.Host, models.Host.name == item.host)
        .outerjoin(held, sa.and_(
            held.host_id == models.Host.id, held.kind == item.kind,
            held.object_id == item.object_id))
        .outerjoin(models.Patch, models.Patch.id == item.object_id)
        .where(item.plan_id == plan_number)
        .order_by(item.host, item.priority)).mappings()
    entries = [{**row, 'held': bool(row['held'])} for row in rows]
    images = _images_of(session, {
        entry['target'] or entry['id'] for entry in entries})
    for entry in entries:
        entry['images'] = images.get(entry['target'] or entry['id'], [])
    return entries


def _images_of(session, content_ids):
    table = models.Image
    found: dict[str, list[str]] = {}
    rows = session.execute(
        sa.select(table.content_id, table.id).where(
            table.status == objects.ACTIVE,
            table.content_id.in_(content_ids)).order_by(table.id))
    for content_id, image_id in rows:
        found.setdefault(content_id, []).append(image_id)
    return found
