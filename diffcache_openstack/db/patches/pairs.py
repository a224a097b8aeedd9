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
"""Pairs of similar contents, and the patches that are worth creating.

A pair is found by a search for similar images, its patch is estimated by a
repository from the sketches, and the pairs of a target are put in order. Then
a repository is assigned one at a time, the best saving first, for a limited
time; until it reports what became of it, it gets the same one again. So a lost
message, a second conductor or an agent that dies costs time and nothing else.
"""

import collections
import collections.abc
import dataclasses
import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db import models
from diffcache_openstack.db.patches import sketches
from diffcache_openstack.db.sites import held_rows
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects
from diffcache_openstack.objects import patch_work

FOUND = 'found'
WANTED = 'wanted'
DECLINED = 'declined'
MADE = 'made'

# Bases of each target that patches are created from, the nearest ones. More
# give the planner hardly better choices, and take as much space each.
NEAREST = 8
# Pairs that are kept for each target: bases worth a patch, and refusals.
MOST_BASES = 24
_MOST_DECLINED = 16
# What one answer has at most.
_SKETCHES = 16
_SEARCHES = 16
_COMPARED = 256
_RECONSIDERED = 256
# How long a host may take for a patch, before another one may create it.
LEASE = datetime.timedelta(hours=1)
_FIRST_RETRY = datetime.timedelta(minutes=1)
_LAST_RETRY = datetime.timedelta(days=1)
# Change of a content's requests that is worth a new order.
_NOTABLE = 1.25
# Contents whose pairs are put in a new order by one call.
_REORDERED = 500
# Lost patches whose pairs one call opens again.
_REOPENED = 256
# Rows per statement, below the limits on parameters of all engines.
_BATCH = 400


@dataclasses.dataclass(frozen=True)
class Worker:
    """A repository that requests pairs to create patches for.

    :param host: its name
    :param terms: by which it declines patches
    :param creations: patches that it can create now
    """

    host: str
    terms: str
    creations: int


def work(session: orm.Session, worker: Worker, now: datetime.datetime
         ) -> objects.PatchWork:
    """Return what a repository is to do next.

    :raises NotFound: the host is not registered
    """
    host_id = host_rows.host_id(session, worker.host)
    reconsidered = _reconsider(session, worker)
    reconsidered += _reopen_lost(session, host_id)
    searched = sketches.due(session, _SEARCHES)
    for row in searched:
        _add_pairs(session, row)
    found = objects.PatchWork(
        sketch=sketches.unsketched(session, host_id, now, _SKETCHES),
        compare=_uncompared(session, host_id, now),
        create=_assign(session, host_id, worker, now))
    found.pending = bool(reconsidered or searched or found.sketch
                         or found.compare or found.create)
    return found


def report(session: orm.Session, host: str, terms: str,
           reports: collections.abc.Sequence[objects.PairReport],
           now: datetime.datetime) -> None:
    """Store what a repository found about pairs.

    Unknown ones are ignored, and those that another repository is creating the
    patch of: it had the pair before, or estimated it at the same time.
    """
    by_pair = {(each.base, each.target): each for each in reports}
    targets = {target for _base, target in by_pair}
    rows = [row for row in _rows_of_targets(session, targets)
            if (row.base, row.target) in by_pair and row.state != MADE
            and not _is_of_another(row, host, now)]
    for row in rows:
        _note(row, by_pair[row.base, row.target], now)
        if row.state == DECLINED:
            row.host, row.terms = host, terms
    session.flush()
    _order(session, {row.target for row in rows})


def _is_of_another(row, host, now):
    """Return whether a pair is assigned to another host."""
    return row.host not in (None, host) and row.free_at is not None \
        and row.free_at > now


def note_patch(session: orm.Session, patch: models.Patch) -> None:
    """Note that the patch of a pair exists."""
    row = session.get(models.PatchPair, (patch.base, patch.target))
    if row is None:
        ends = set(session.scalars(
            sa.select(models.Sketch.content_id).where(
                models.Sketch.content_id.in_((patch.base, patch.target)))))
        if len(ends) < 2:
            return
        row = models.PatchPair(base=patch.base, target=patch.target)
        session.add(row)
    row.state, row.size = MADE, patch.size
    row.host = row.free_at = row.reason = None
    session.flush()


def withdraw_content(session: orm.Session, content_id: str) -> None:
    """Remove the pairs of a content that is not served any more.

    Images that lose a base by this get others, if there are any.
    """
    table = models.PatchPair
    sketches.search_again(session, list(session.scalars(
        sa.select(table.target).where(
            table.base == content_id, table.state != DECLINED))))
    session.execute(sa.delete(table).where(sa.or_(
        table.base == content_id, table.target == content_id))
        .execution_options(synchronize_session=False))


def refresh_demand(session: orm.Session, since: datetime.datetime) -> int:
    """Put pairs in order again whose images are requested more or less often.

    :param since: requests before it do not count
    :returns: the images whose demand changed
    """
    counts = {content: count for content, count in session.execute(
        sa.select(models.Request.content_id, sa.func.count())
        .where(models.Request.started_at >= since,
               models.Request.content_id.is_not(None))
        .group_by(models.Request.content_id))}
    changed = []
    for number, content, before in session.execute(sa.select(
            models.Sketch.id, models.Sketch.content_id,
            models.Sketch.requests)):
        after = counts.get(content, 0)
        factor = (after + 1) / (before + 1)
        if not 1 / _NOTABLE < factor < _NOTABLE:
            changed.append((number, content, after))
    del changed[_REORDERED:]
    for number, _content, after in changed:
        session.execute(sa.update(models.Sketch).where(
            models.Sketch.id == number).values(requests=after)
            .execution_options(synchronize_session=False))
    _order(session, {content for _number, content, _after in changed})
    return len(changed)


def _reconsider(session, worker):
    """Have pairs estimated again that the host declined by other terms."""
    table = models.PatchPair
    # Not "terms differ", which no index can answer.
    chosen = [row for other in (table.terms < worker.terms,
                                table.terms > worker.terms)
              for row in session.scalars(sa.select(table).where(
                  table.host == worker.host, other,
                  table.state == DECLINED).limit(_RECONSIDERED))]
    for row in chosen:
        row.state, row.host, row.terms = FOUND, None, None
    session.flush()
    return len(chosen)


def is_lost(session: orm.Session, patch_id: str) -> bool:
    """Return whether dead repositories hold a patch, and no living one."""
    found = session.scalars(
        sa.select(models.Host.alive).join(
            models.Holding, models.Holding.host_id == models.Host.id)
        .where(_is_repositorys_patch(),
               models.Holding.object_id == patch_id)).all()
    return bool(found) and not any(found)


def _is_repositorys_patch():
    return sa.and_(models.Host.role == objects.REPOSITORY,
                   models.Holding.kind == objects.PATCHES)


def _reopen_lost(session, host_id):
    """Have patches created again that only dead repositories hold.

    Only those whose images a living repository holds.

    :returns: their number
    """
    held, patch = orm.aliased(models.Holding), models.Patch
    dead = list(session.scalars(sa.select(models.Host.id).where(
        models.Host.role == objects.REPOSITORY,
        sa.not_(models.Host.alive))))
    if not dead:
        return 0
    elsewhere = sa.exists().where(
        _is_repositorys_patch(), models.Host.alive,
        models.Host.id == models.Holding.host_id,
        models.Holding.object_id == held.object_id)
    table = models.PatchPair
    rows = session.scalars(
        sa.select(table)
        .join(patch, sa.and_(patch.base == table.base,
                             patch.target == table.target))
        .join(held, sa.and_(held.object_id == patch.id,
                            held.kind == objects.PATCHES))
        .where(table.state == MADE, held.host_id.in_(dead),
               sa.not_(elsewhere), held_rows.is_held(host_id, table.base),
               held_rows.is_held(host_id, table.target))
        .limit(_REOPENED)).unique().all()
    for row in rows:
        row.state, row.host, row.free_at = WANTED, None, None
    session.flush()
    _order(session, {row.target for row in rows})
    return len(rows)


def _add_pairs(session, row):
    """Search for contents similar to one, and add the pairs of both."""
    row.state = sketches.KNOWN
    found = sketches.similar(session, row)
    own, table = row.content_id, models.PatchPair
    known = {pair for other in (
        sa.select(table.base, table.target).where(
            table.base == own, table.target.in_(found)),
        sa.select(table.base, table.target).where(
            table.target == own, table.base.in_(found)))
        for pair in map(tuple, session.execute(other))}
    made = {(patch.base, patch.target): patch.size for patch in
            session.scalars(sa.select(models.Patch).where(sa.or_(
                sa.and_(models.Patch.base == own,
                        models.Patch.target.in_(found)),
                sa.and_(models.Patch.target == own,
                        models.Patch.base.in_(found)))))}
    for other, likeness in found.items():
        for pair in {(own, other), (other, own)} - known:
            session.add(table(
                base=pair[0], target=pair[1], likeness=likeness,
                state=MADE if pair in made else FOUND, size=made.get(pair)))
    session.flush()


def _held_pairs(host_id):
    """Select pairs whose contents a host both holds."""
    table = models.PatchPair
    return sa.select(table.base, table.target).where(
        held_rows.is_held(host_id, table.base),
        held_rows.is_held(host_id, table.target))


def _pairs(rows):
    return [objects.PatchPair(base=base, target=target)
            for base, target in rows]


def _uncompared(session, host_id, now):
    table = models.PatchPair
    return _pairs(session.execute(_held_pairs(host_id).where(
        table.state == FOUND,
        sa.or_(table.free_at.is_(None), table.free_at <= now))
        .limit(_COMPARED)))


def _assign(session, host_id, worker, now):
    """Assign a host the pairs that save most, those it has already first."""
    if not worker.creations:
        return []
    table = models.PatchPair
    free = sa.or_(table.free_at.is_(None), table.free_at <= now,
                  table.host == worker.host)
    candidates = session.execute(_held_pairs(host_id).where(
        table.state == WANTED, table.place < NEAREST, free)
        .order_by(table.saving.desc()).limit(worker.creations)).all()
    # Another conductor may have assigned it since.
    return _pairs(
        (base, target) for base, target in candidates
        if session.execute(
            sa.update(table).where(table.base == base,
                                   table.target == target,
                                   table.state == WANTED, free)
            .values(host=worker.host, free_at=now + LEASE)
            .execution_options(synchronize_session=False)).rowcount)


def _note(row, found, now):
    """Change the row of a pair by what a host reports of it."""
    row.host = row.free_at = None
    row.reason = found.reason
    if found.verdict == patch_work.FAILED:
        delay = min(_FIRST_RETRY * 2 ** min(row.attempts, 20), _LAST_RETRY)
        row.attempts += 1
        row.free_at = now + delay
        return
    row.size, row.attempts = found.size, 0
    if found.verdict == patch_work.DECLINED:
        row.state, row.place = DECLINED, None
    else:
        row.state = WANTED


def _rows_of_targets(session, targets):
    ordered = sorted(targets)
    for start in range(0, len(ordered), _BATCH):
        yield from session.scalars(sa.select(models.PatchPair).where(
            models.PatchPair.target.in_(ordered[start:start + _BATCH])))


def _order(session, targets):
    """Put the pairs of targets in order, and drop those far behind."""
    by_target = collections.defaultdict(list)
    for row in _rows_of_targets(session, targets):
        by_target[row.target].append(row)
    about = _about(session, targets)
    for target, rows in by_target.items():
        data_size, requests = about.get(target, (0, 0))
        usable = _sorted(rows, (WANTED, MADE))
        for place, row in enumerate(usable):
            row.place = place
            row.saving = saving(row.size, data_size, requests, place)
        for row in (*usable[MOST_BASES:],
                    *_sorted(rows, (DECLINED,))[_MOST_DECLINED:]):
            if row.state != MADE:
                session.delete(row)
    session.flush()


def _sorted(rows, states):
    return sorted((row for row in rows
                   if row.state in states and row.size is not None),
                  key=lambda row: (row.size, row.base))


def _about(session, targets):
    """Return data size and requests of contents."""
    found, ordered = {}, sorted(targets)
    for start in range(0, len(ordered), _BATCH):
        found |= {content: (size, requests)
                  for content, size, requests in session.execute(sa.select(
                      models.Sketch.content_id, models.Sketch.data_size,
                      models.Sketch.requests).where(
                      models.Sketch.content_id.in_(
                          ordered[start:start + _BATCH])))}
    return found


def saving(size: int, data_size: int, requests: int, place: int) -> float:
    """Return the bytes that a patch is expected to save.

    A base is used only where no nearer one is at hand: each further place
    halves what its patch is worth. An image that was never requested counts
    as requested once, as new ones are.
    """
    return (requests + 1) * max(data_size - size, 0) / 2 ** min(place, 60)
