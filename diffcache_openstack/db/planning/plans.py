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
"""Plans, and the leases that keep conductors from planning twice."""

import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import generations
from diffcache_openstack import objects

_COPIED = ('site', 'generation', 'solver', 'cost_s', 'lower_bound_s',
           'proved_optimal', 'solver_seconds', 'created_at', 'objective',
           *objects.PLAN_FIGURES)
_ITEM_COPIED = ('host', 'kind', 'bytes', 'priority', 'saved_seconds')


class Basis(typing.NamedTuple):
    """The plan of a site that something else was computed from.

    :ivar generation: of that plan, 0 if the site had none
    """

    site: str
    generation: int


def put_plan(session: orm.Session, plan: objects.Plan, expected: int
             ) -> objects.Plan:
    """Make a plan the current one of its site.

    :param expected: the generation the site had when planning began
    :returns: the plan with its generation
    :raises Busy: another plan was made in the meantime
    """
    # The clock is a floor: a database that is made anew does not fall behind
    # the generations that agents remember.
    plan.generation = max(expected + 1, int(plan.created_at.timestamp()))
    advance(session, plan.site, expected, plan.generation, plan.created_at)
    row = models.Plan(**{name: getattr(plan, name) for name in _COPIED})
    session.add(row)
    session.flush()
    session.add_all(models.PlanHost(plan_id=row.id, host=host)
                    for host in plan.hosts)
    session.add_all(
        models.PlanItem(plan_id=row.id, object_id=item.id,
                        **{name: getattr(item, name)
                           for name in _ITEM_COPIED})
        for item in plan.items)
    session.flush()
    return plan


def advance(session: orm.Session, site: str, expected: int, generation: int,
            when: datetime.datetime) -> None:
    """Move a site to a plan's generation if it still has the expected one.

    :raises Busy: it has another one
    """
    updated = session.execute(
        sa.update(models.Site).where(
            models.Site.name == site,
            models.Site.plan_generation == expected)
        .values(plan_generation=generation, planned_at=when)
        .execution_options(synchronize_session=False)).rowcount
    if not updated:
        raise _another_plan(site)


def check_basis(session: orm.Session, basis: Basis) -> None:
    """Check that a site still has a plan, and keep it until the commit.

    :raises Busy: it has another plan
    """
    present = session.scalar(
        sa.select(models.Site.plan_generation)
        .where(models.Site.name == basis.site).with_for_update())
    if present != basis.generation:
        raise _another_plan(basis.site)


def _another_plan(site: str) -> exceptions.Busy:
    return exceptions.Busy(
        f'Another plan was computed for site {site} meanwhile; repeat'
        f' the request to plan from the present state.')


def set_planned(session: orm.Session, site: str,
                when: datetime.datetime | None) -> None:
    """Note when a round of planning ended; None makes the site due."""
    session.execute(
        sa.update(models.Site).where(models.Site.name == site)
        .values(planned_at=when)
        .execution_options(synchronize_session=False))


def generation(session: orm.Session, site: str) -> int:
    """Return the generation of a site's current plan, 0 if it has none.

    :raises NotFound: no host of the site was ever registered
    """
    number = session.scalar(sa.select(models.Site.plan_generation).where(
        models.Site.name == site))
    if number is None:
        raise generations.unknown_site(site)
    return number


def current_plan(session: orm.Session, site: str) -> objects.Plan | None:
    """Return the current plan of a site; None if it has none.

    :raises NotFound: no host of the site was ever registered
    """
    row = session.scalar(sa.select(models.Plan).where(
        models.Plan.site == site,
        models.Plan.generation == generation(session, site)))
    return None if row is None else load(session, row)


def lacked_by(session: orm.Session, host: objects.Host
              ) -> objects.Plan | None:
    """Return the current plan of a host's site if the host lacks it.

    :returns: None if the host has it, or the plan does not contain the host
    """
    row = session.scalar(
        sa.select(models.Plan)
        .join(models.Site, sa.and_(
            models.Site.name == models.Plan.site,
            models.Site.plan_generation == models.Plan.generation))
        .join(models.PlanHost, models.PlanHost.plan_id == models.Plan.id)
        .where(models.Plan.site == host.site,
               models.Plan.generation != host.plan_generation,
               models.PlanHost.host == host.name))
    return None if row is None else load(session, row)


def load(session: orm.Session, row: models.Plan) -> objects.Plan:
    """Load the plan of a row, with its hosts and items.

    The generation of one that was never applied is the one of the
    plan it was computed against.
    """
    items = session.scalars(
        sa.select(models.PlanItem).where(models.PlanItem.plan_id == row.id)
        .order_by(models.PlanItem.host, models.PlanItem.priority))
    hosts = session.scalars(
        sa.select(models.PlanHost.host).where(
            models.PlanHost.plan_id == row.id).order_by(models.PlanHost.host))
    values = {name: getattr(row, name) for name in _COPIED}
    if row.generation is None:
        values['generation'] = row.base_generation
    return objects.Plan(
        hosts=list(hosts),
        items=[objects.PlanItem(id=item.object_id,
                                **{name: getattr(item, name)
                                   for name in _ITEM_COPIED})
               for item in items],
        **values)


def drop_items(session: orm.Session, kind: str, known: sa.Select) -> None:
    """Remove unavailable objects from current and proposed plans.

    Hosts need no message: they read from the map that it is gone.

    :param kind: of the objects looked at
    :param known: selects the ids of those there are
    """
    alive = list(session.scalars(
        sa.select(models.Plan.id).join(
            models.Site, models.Site.name == models.Plan.site)
        .where(sa.or_(
            models.Plan.generation.is_(None),
            models.Plan.generation == models.Site.plan_generation))))
    session.execute(
        sa.delete(models.PlanItem).where(
            models.PlanItem.plan_id.in_(alive), models.PlanItem.kind == kind,
            models.PlanItem.object_id.not_in(known))
        .execution_options(synchronize_session=False))


def due_sites(session: orm.Session, before: datetime.datetime) -> list[str]:
    """List sites whose last round of planning ended before an instant.

    Those without a living compute host have nothing to plan.
    """
    return list(session.scalars(
        sa.select(models.Site.name).where(
            sa.or_(models.Site.planned_at.is_(None),
                   models.Site.planned_at < before),
            sa.exists().where(
                models.Host.site == models.Site.name, models.Host.alive,
                models.Host.role == objects.COMPUTE))
        .order_by(models.Site.name)))


def prune(session: orm.Session, site: str, keep: int) -> None:
    """Delete all but the latest plans of a site."""
    kept = list(session.scalars(
        sa.select(models.Plan.id).where(
            models.Plan.site == site, models.Plan.generation.is_not(None))
        .order_by(models.Plan.generation.desc()).limit(keep)))
    old = list(session.scalars(sa.select(models.Plan.id).where(
        models.Plan.site == site, models.Plan.id.not_in(kept),
        models.Plan.generation.is_not(None))))
    remove(session, old)


def remove(session: orm.Session, plan_ids: list[int]) -> None:
    """Delete plans by the numbers of their rows."""
    for column in (models.PlanItem.plan_id, models.PlanHost.plan_id,
                   models.Plan.id):
        session.execute(sa.delete(column.class_).where(column.in_(plan_ids))
                        .execution_options(synchronize_session=False))


def take_lease(session: orm.Session, name: str, owner: str,
               now: datetime.datetime, until: datetime.datetime
               ) -> str | None:
    """Take or renew a lease.

    :returns: None if it is the owner's now, else who has it
    """
    row = session.get(models.Lease, name, with_for_update=True)
    if row is None:
        session.add(models.Lease(name=name, owner=owner, expires_at=until))
        session.flush()
        return None
    if row.owner != owner and row.expires_at > now:
        return row.owner
    row.owner, row.expires_at = owner, until
    return None


def leased(session: orm.Session, prefix: str, now: datetime.datetime
           ) -> set[str]:
    """Return the names of leases in force that begin with a prefix."""
    table = models.Lease
    return set(session.scalars(
        sa.select(table.name).where(
            table.name.startswith(prefix, autoescape=True),
            table.expires_at > now)))


def drop_leases(session: orm.Session, prefix: str) -> None:
    """Remove leases whose names begin with a prefix."""
    table = models.Lease
    session.execute(
        sa.delete(table).where(table.name.startswith(prefix, autoescape=True))
        .execution_options(synchronize_session=False))


def drop_expired(session: orm.Session, now: datetime.datetime) -> None:
    """Remove leases that are not in force any more."""
    session.execute(
        sa.delete(models.Lease).where(models.Lease.expires_at < now)
        .execution_options(synchronize_session=False))


def drop_lease(session: orm.Session, name: str, owner: str) -> None:
    """Release a lease, unless another conductor has taken it."""
    session.execute(
        sa.delete(models.Lease).where(models.Lease.name == name,
                                      models.Lease.owner == owner)
        .execution_options(synchronize_session=False))
