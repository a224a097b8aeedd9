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
"""When servers are saved, and which of their versions are kept."""

import collections.abc
import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import listing
from diffcache_openstack.db import models
from diffcache_openstack import objects

_VALUES = ('every', 'keep_last', 'keep_hourly', 'keep_daily', 'keep_weekly',
           'keep_monthly', 'on_shutdown', 'on_delete', 'required',
           'volumes', 'alpha')
_SHOWN = ('id', 'project_id', 'server_id', *_VALUES, 'created_at',
          'updated_at')


def put(session: orm.Session, policy: objects.VersionPolicy,
        when: datetime.datetime) -> str:
    """Set the policy of a server or project, in place of what it had.

    :returns: the policy's id, which it keeps as long as it is set
    """
    row = _find(session, policy.project_id, policy.server_id or '')
    if row is None:
        row = models.VersionPolicy(
            id=policy.id, project_id=policy.project_id,
            server_id=policy.server_id or '', created_at=when)
        session.add(row)
    for name in _VALUES:
        setattr(row, name, getattr(policy, name))
    row.updated_at = when
    session.flush()
    return row.id


def exists(session: orm.Session, project_id: str, server_id: str | None
           ) -> bool:
    """Return whether a server, or a project, has a policy of its own."""
    return _find(session, project_id, server_id or '') is not None


def of_server(session: orm.Session, project_id: str, server_id: str
              ) -> objects.VersionPolicy | None:
    """Return the policy of a server, or else that of its project."""
    row = (_find(session, project_id, server_id)
           or _find(session, project_id, ''))
    return None if row is None else _policy(row)


def all_policies(session: orm.Session) -> list[objects.VersionPolicy]:
    """Return every policy, by project and server."""
    table = models.VersionPolicy
    return [_policy(row) for row in session.scalars(
        sa.select(table).order_by(table.project_id, table.server_id))]


def remove(session: orm.Session, policy_id: str) -> None:
    """Remove a policy.

    :raises NotFound: there is none with that id
    """
    row = session.get(models.VersionPolicy, policy_id)
    if row is None:
        raise unknown_policy(policy_id)
    session.delete(row)


def list_policies(session: listing.Reader, viewer: listing.Viewer,
                  filters: collections.abc.Mapping[str, typing.Any],
                  page: listing.Page) -> listing.Part:
    """List the policies that a viewer may see, by ID.

    :param filters: server_id, project_id
    """
    table = models.VersionPolicy
    query = listing.narrowed(_visible(viewer), table, filters,
                             ('server_id', 'project_id'))
    part = listing.part_by_key(session, query, table.id, page)
    _complete(part.entries)
    return part


def get_policy(session: listing.Reader, viewer: listing.Viewer, policy_id: str
               ) -> listing.Entry:
    """Return one policy, as :func:`list_policies` shows it.

    :raises NotFound: there is none that the viewer may see
    """
    entry: dict[str, typing.Any] = listing.only(
        session, _visible(viewer).where(models.VersionPolicy.id == policy_id),
        unknown_policy(policy_id))
    _complete([entry])
    return entry


def unknown_policy(policy_id: str) -> exceptions.NotFound:
    """Return the error for a policy that the caller cannot see."""
    return exceptions.NotFound(
        f'Version policy {policy_id} is unknown; see "openstack server'
        f' version policy list".')


def _visible(viewer):
    return listing.of_viewer(models.VersionPolicy, _SHOWN, viewer)


def _complete(entries):
    for entry in entries:
        entry['server_id'] = entry['server_id'] or None


def _find(session, project_id, server_id):
    table = models.VersionPolicy
    return session.scalar(sa.select(table).where(
        table.project_id == project_id, table.server_id == server_id))


def _policy(row) -> objects.VersionPolicy:
    return objects.VersionPolicy(
        id=row.id, project_id=row.project_id,
        server_id=row.server_id or None,
        **{name: getattr(row, name) for name in _VALUES})
