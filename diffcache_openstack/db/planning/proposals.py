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
"""Plans that are computed on request and applied later, or never.

States: computing, then proposed or failed; a proposal is applied or
cancelled. Nothing here plans: see :mod:`conductor.proposals`.
"""

import collections.abc
import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.db.planning import plans
from diffcache_openstack.db.views import plan_views
from diffcache_openstack import objects

COMPUTING = 'computing'
PROPOSED = 'proposed'
FAILED = 'failed'
CANCELLED = 'cancelled'
APPLIED = 'applied'
# Begins the names of leases on plans that are computed or queued.
_LEASE = 'proposal:'


def begin(session: orm.Session, site: str, plan_id: str, solver: str,
          when: datetime.datetime) -> None:
    """Note that a plan is being computed.

    :raises NotFound: no host of the site was ever registered
    """
    session.add(models.Plan(
        uuid=plan_id, site=site, state=COMPUTING, generation=None,
        base_generation=plans.generation(session, site), solver=solver,
        cost_s=0.0, lower_bound_s=0.0, proved_optimal=False,
        solver_seconds=0.0, created_at=when))
    session.flush()


def finish(session: orm.Session, plan_id: str, plan: objects.Plan) -> bool:
    """Store the computed plan.

    :param plan: its generation is that of the plan it was computed against
    :returns: False if it was cancelled meanwhile
    """
    row = _find(session, plan_id)
    if row is None or row.state != COMPUTING:
        return False
    row.state, row.base_generation = PROPOSED, plan.generation
    for name in ('solver', 'cost_s', 'lower_bound_s', 'proved_optimal',
                 'solver_seconds', 'objective', *objects.PLAN_FIGURES):
        setattr(row, name, getattr(plan, name))
    session.add_all(models.PlanHost(plan_id=row.id, host=host)
                    for host in plan.hosts)
    session.add_all(
        models.PlanItem(plan_id=row.id, object_id=item.id, host=item.host,
                        kind=item.kind, bytes=item.bytes,
                        priority=item.priority,
                        saved_seconds=item.saved_seconds)
        for item in plan.items)
    session.flush()
    return True


def fail(session: orm.Session, plan_id: str, reason: str) -> None:
    """Note why there is no plan."""
    row = _find(session, plan_id)
    if row is not None and row.state == COMPUTING:
        row.state, row.error = FAILED, reason


def apply(session: orm.Session, plan_id: str, seen: int | None,
          when: datetime.datetime) -> objects.Plan:
    """Make a proposal the current plan.

    :param seen: the current generation that the caller knows; None not to
        compare
    :raises NotFound: there is no such plan
    :raises Conflict: it is no proposal
    :raises Busy: another plan was applied since it was computed
    """
    row = _need(session, plan_id)
    if row.state != PROPOSED:
        raise exceptions.Conflict(
            f'Plan {plan_id} is {row.state}; only a proposed plan can be'
            f' applied.')
    expected = row.base_generation
    if seen is not None and seen != expected:
        raise exceptions.Busy(
            f'Plan {plan_id} was computed against generation {expected} of'
            f' site {row.site}, not {seen}; read it again.')
    generation = max(expected + 1, int(when.timestamp()))
    plans.advance(session, row.site, expected, generation, when)
    row.state, row.generation = APPLIED, generation
    session.flush()
    return typing.cast(objects.Plan, plans.current_plan(session, row.site))


def cancel(session: orm.Session, plan_id: str) -> None:
    """Drop a proposal; one that is dropped or failed stays so.

    :raises NotFound: there is no such plan
    :raises Conflict: it is or was the current plan
    """
    row = _need(session, plan_id)
    if row.state == APPLIED:
        raise exceptions.Conflict(
            f'Cannot cancel plan {plan_id}: it is or was the current one.'
            f' Apply another one instead.')
    if row.state in (COMPUTING, PROPOSED):
        row.state = CANCELLED


def get_plan(session: orm.Session, plan_id: str) -> objects.Plan:
    """Return a plan, current or not.

    :raises NotFound: there is no such plan
    """
    return plans.load(session, _need(session, plan_id))


def renew(session: orm.Session, plan_ids: collections.abc.Iterable[str],
          owner: str, now: datetime.datetime, until: datetime.datetime
          ) -> None:
    """Renew the leases of a conductor on plans that it is yet to finish."""
    for plan_id in plan_ids:
        plans.take_lease(session, _LEASE + plan_id, owner, now, until)


def give_up(session: orm.Session, before: datetime.datetime,
            now: datetime.datetime) -> int:
    """Fail plans that no conductor is going to finish; return their number.

    :param before: younger plans may have no lease yet
    """
    lease = models.Lease
    is_leased = sa.exists().where(lease.name == _LEASE + models.Plan.uuid,
                                  lease.expires_at > now)
    return session.execute(
        sa.update(models.Plan).where(
            models.Plan.state == COMPUTING, models.Plan.created_at < before,
            sa.not_(is_leased))
        .values(state=FAILED,
                error='The conductor that computed it stopped; ask again.')
        .execution_options(synchronize_session=False)).rowcount


def prune(session: orm.Session, before: datetime.datetime) -> int:
    """Delete proposals that were never applied, before an instant."""
    old = list(session.scalars(sa.select(models.Plan.id).where(
        models.Plan.generation.is_(None), models.Plan.created_at < before)))
    plans.remove(session, old)
    return len(old)


def _find(session, plan_id):
    return session.scalar(sa.select(models.Plan).where(
        models.Plan.uuid == plan_id).with_for_update())


def _need(session, plan_id):
    row = _find(session, plan_id)
    if row is None:
        raise plan_views.unknown_plan(plan_id)
    return row
