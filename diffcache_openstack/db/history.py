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
"""The history of requests."""

import collections.abc
import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack import objects

# Fields that a row takes from the object as they are.
_COPIED = ('id', 'template_id', 'host', 'mode', 'way', 'detail', 'seconds',
           'predicted_seconds', 'wan_bytes', 'lan_bytes', 'fallbacks',
           'patch_id', 'apply_seconds', 'started_at', 'error')


class Demand(typing.NamedTuple):
    """One past request: who asked for which content, and when."""

    host: str
    content_id: str
    started_at: datetime.datetime


def put_request(session: orm.Session, request: objects.Request) -> bool:
    """Remember a request.

    :returns: whether it was new; one that is known already is left alone
    """
    if session.get(models.Request, request.id) is not None:
        return False
    row = models.Request(**{name: getattr(request, name)
                            for name in _COPIED})
    row.content_id = session.scalar(
        sa.select(models.Template.content_id).where(
            models.Template.id == request.template_id))
    row.site = session.scalar(sa.select(models.Host.site).where(
        models.Host.name == request.host)) or ''
    session.add(row)
    session.flush()
    if request.patch_id and request.apply_seconds:
        catalogue.time_patch(session, request.patch_id,
                             request.apply_seconds)
    return True


def put_requests(session: orm.Session,
                 requests: collections.abc.Sequence[objects.Request]) -> int:
    """Remember requests; returns how many were new."""
    return sum(put_request(session, request) for request in requests)


def demand(session: orm.Session, site: str, since: datetime.datetime
           ) -> list[Demand]:
    """What was asked for at a site since an instant.

    Failed requests count too: their demand was real.
    """
    table = models.Request
    rows = session.execute(
        sa.select(table.host, table.content_id, table.started_at).where(
            table.site == site, table.started_at >= since,
            table.content_id.is_not(None)))
    return [Demand(*row) for row in rows]


def list_requests(session: orm.Session, limit: int) -> list[objects.Request]:
    """The latest requests, newest first."""
    rows = session.scalars(sa.select(models.Request).order_by(
        models.Request.started_at.desc(), models.Request.id).limit(limit))
    return [objects.Request(**{name: getattr(row, name) for name in _COPIED})
            for row in rows]


def prune(session: orm.Session, before: datetime.datetime) -> int:
    """Forget requests that started before an instant; returns how many."""
    return session.execute(
        sa.delete(models.Request).where(models.Request.started_at < before)
        .execution_options(synchronize_session=False)).rowcount
