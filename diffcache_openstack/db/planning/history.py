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
import urllib.parse

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import catalogue
from diffcache_openstack.db import models
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack import objects

# Fields that a row takes from the object as they are.
_COPIED = ('id', 'image_id', 'host', 'mode', 'way', 'detail', 'seconds',
           'predicted_seconds', 'wan_bytes', 'lan_bytes', 'fallbacks',
           'patch_id', 'apply_seconds', 'started_at', 'error')


# The way of what was not answered by an agent, but noticed: a server that
# was started from an image, and an image that Glance sent.
BOOT = 'nova'
DOWNLOAD = 'glance'
# Detail of a boot, before the ID of the request that it caused.
_SAME_AS = 'request '
# Clocks of hosts differ by this much at most, if they are kept.
_CLOCKS = datetime.timedelta(seconds=5)
# No server is made for longer.
_LONGEST_BOOT = datetime.timedelta(days=1)


class Demand(typing.NamedTuple):
    """One past request: host, content and time."""

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
        sa.select(models.Image.content_id).where(
            models.Image.id == request.image_id))
    row.site = session.scalar(sa.select(models.Host.site).where(
        models.Host.name == request.host)) or ''
    session.add(row)
    session.flush()
    _absorb_boot(session, row)
    if request.patch_id and request.apply_seconds:
        catalogue.time_patch(session, request.patch_id,
                             request.apply_seconds)
    return True


def put_requests(session: orm.Session,
                 requests: collections.abc.Sequence[objects.Request]) -> int:
    """Remember requests that hosts report; returns how many were new.

    :raises NotFound: the host of one is not registered
    :raises Forbidden: it is of those that Nova and Glance notify of
    """
    for name in {request.host for request in requests}:
        host_rows.host_id(session, name)
    for request in requests:
        if request.way in (BOOT, DOWNLOAD):
            raise exceptions.Forbidden(
                f'Host {request.host} cannot report the request {request.id}'
                f' of {request.way}, which notifies of it itself.')
    return sum(put_request(session, request) for request in requests)


def put_boot(session: orm.Session, boot: objects.Request) -> bool:
    """Remember that a server was started from an image.

    If the agent of the host was asked for the image meanwhile, that is known
    as a request, and the boot is no demand beside it. If it was not, because
    the host still had the image, no other host knows of this demand.

    :param boot: ``seconds`` from ``started_at`` on the server was being made
    :returns: whether it was new
    """
    if session.get(models.Request, boot.id) is not None:
        return False
    row = models.Request(**{name: getattr(boot, name) for name in _COPIED})
    row.way = BOOT
    row.site = session.scalar(sa.select(models.Host.site).where(
        models.Host.name == boot.host)) or ''
    request = _request_during(session, row)
    if request is None:
        row.content_id = session.scalar(
            sa.select(models.Image.content_id).where(
                models.Image.id == boot.image_id))
    else:
        row.detail = _same_as(request)
    session.add(row)
    session.flush()
    return True


def put_download(session: orm.Session, download: objects.Request,
                 address: str | None) -> bool:
    """Remember that Glance sent an image.

    :param download: its ``host`` is that of the Glance
    :param address: to which it was sent
    :returns: whether it counts: what a compute host downloads is counted
        when its server starts, and a repository takes images in
    """
    others, known = set(), False
    for host in host_rows.list_hosts(session):
        if host.name == download.host and host.role == objects.COMPUTE:
            known = True
        elif host.url:
            others.add(urllib.parse.urlsplit(host.url).hostname)
    if not known or address in others:
        return False
    return put_request(session, download)


def _request_during(session, boot):
    """Find a request that a boot caused, and that no other boot has."""
    table = models.Request
    begin = boot.started_at - _CLOCKS
    end = (boot.started_at + datetime.timedelta(seconds=boot.seconds)
           + _CLOCKS)
    taken = set(session.scalars(sa.select(table.detail).where(
        table.way == BOOT, table.host == boot.host,
        table.image_id == boot.image_id,
        table.started_at.between(begin - _LONGEST_BOOT, end + _CLOCKS))))
    found = session.scalars(sa.select(table).where(
        table.host == boot.host, table.image_id == boot.image_id,
        table.way.not_in((BOOT, DOWNLOAD)),
        table.started_at.between(begin, end)).order_by(table.started_at))
    return next((row for row in found if _same_as(row) not in taken), None)


def _absorb_boot(session, request):
    """Return whether a request was reported after the boot that caused it."""
    if request.way in (BOOT, DOWNLOAD):
        return
    table = models.Request
    about_then = table.started_at.between(
        request.started_at - _LONGEST_BOOT, request.started_at + _CLOCKS)
    boots = session.scalars(sa.select(table).where(
        table.host == request.host, table.way == BOOT,
        table.image_id == request.image_id,
        table.content_id.is_not(None), about_then)
        .order_by(table.started_at))
    for boot in boots:
        end = boot.started_at + datetime.timedelta(seconds=boot.seconds)
        if request.started_at <= end + _CLOCKS:
            boot.content_id, boot.detail = None, _same_as(request)
            session.flush()
            return


def _same_as(request):
    return f'{_SAME_AS}{request.id}'


def demand(session: orm.Session, site: str, since: datetime.datetime
           ) -> list[Demand]:
    """Return the requests of a site since an instant.

    Failed requests count too: their demand was real. Hosts report requests,
    and one may invent some: where Nova notifies of servers that are created,
    those count that one is known of, and what Glance sent.
    """
    table, boot = models.Request, orm.aliased(models.Request)
    notifies = session.scalar(sa.select(sa.exists().where(
        table.way == BOOT, table.started_at >= since)))
    served = sa.exists().where(
        boot.way == BOOT, boot.host == table.host,
        boot.image_id == table.image_id,
        boot.detail == sa.literal(_SAME_AS).concat(table.id))
    rows = session.execute(
        sa.select(table.host, table.content_id, table.started_at).where(
            table.site == site, table.started_at >= since,
            table.content_id.is_not(None),
            sa.or_(table.way.in_((BOOT, DOWNLOAD)), served)
            if notifies else sa.true()))
    return [Demand(*row) for row in rows]


def prune(session: orm.Session, before: datetime.datetime) -> int:
    """Delete requests that started before an instant; return how many."""
    return session.execute(
        sa.delete(models.Request).where(models.Request.started_at < before)
        .execution_options(synchronize_session=False)).rowcount
