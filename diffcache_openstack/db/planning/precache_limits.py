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
"""What precache jobs allow for the objects of a plan.

A job's limits hold for the images that it names, and for what these are built
of at the site. Where several jobs want an object the most generous one counts:
one without a rate lifts the limit, one without a window opens it.
"""

import collections
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db import models
from diffcache_openstack import objects
from diffcache_openstack.objects import precache


class Limit(typing.NamedTuple):
    """What jobs allow for an object.

    :ivar rate: bytes/s for each host, None for no limit
    :ivar windows: when hosts may fetch it; empty for always
    """

    job_id: str
    rate: int | None
    windows: list[str]


def of_plan(session: orm.Session, plan: objects.Plan
            ) -> dict[tuple[str, str], Limit]:
    """Return the limits of a plan's items, by kind and id."""
    jobs = _jobs(session, plan.hosts)
    if not jobs:
        return {}
    found = {}
    for key, contents in _contents(session, plan).items():
        limit = _merged([job for content_id in sorted(contents)
                         for job in jobs.get(content_id, ())])
        if limit is not None:
            found[key] = limit
    return found


def _jobs(session, hosts):
    """Return living jobs by the contents that they want on these hosts."""
    job, target = models.PrecacheJob, models.PrecacheTarget
    rows = session.execute(
        sa.select(target.content_id, job.id, job.rate, job.window).distinct()
        .join(job, job.id == target.job_id)
        .where(job.state.in_(precache.LIVING), target.host.in_(hosts),
               target.content_id.is_not(None))
        .order_by(target.content_id, job.id))
    found = collections.defaultdict(list)
    for content_id, job_id, rate, window in rows:
        found[content_id].append((job_id, rate, window))
    return found


def _contents(session, plan):
    """Return, by item, the contents that it is, or helps to build.

    What is built of a base may be a base again: patches are applied one after
    another.
    """
    patches = [item.id for item in plan.items if item.kind == objects.PATCHES]
    table = models.Patch
    steps = {patch_id: (base, target) for patch_id, base, target in
             session.execute(sa.select(table.id, table.base, table.target)
                             .where(table.id.in_(patches)))}
    targets = collections.defaultdict(set)
    for base, target in steps.values():
        targets[base].add(target)
    found = {(item.kind, item.id): _built_of(item.id, targets)
             for item in plan.items if item.kind == objects.IMAGES}
    for patch_id, (_base, target) in steps.items():
        found[objects.PATCHES, patch_id] = _built_of(target, targets)
    return found


def _built_of(content_id, targets):
    """Return a content, and all that is built of it by some patches."""
    found, left = {content_id}, [content_id]
    while left:
        new = targets.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def _merged(jobs):
    """Return the most generous limit; None if there is none."""
    if not jobs:
        return None
    rates = [rate for _id, rate, _window in jobs]
    windows = [window for _id, _rate, window in jobs]
    rate = None if None in rates else max(rates)
    texts = [] if not all(windows) else sorted(set(windows))
    if rate is None and not texts:
        return None
    owner = next(job_id for job_id, own, _window in jobs if own == rate)
    return Limit(owner, rate, texts)
