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
"""How much of each resource with a quota a project uses."""

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db import models
from diffcache_openstack.objects import precache
from diffcache_openstack.objects import versions as states

_MIB = 2 ** 20
# Users start these; the upkeep of a store does not count.
_COUNTED = (states.SAVE, states.RESTORE, states.EXPORT, states.DIFF)


def versions(session: orm.Session, project_id: str) -> int:
    """Return the number of versions that are saved, or are being saved.

    Cinder has quotas of its own for backups of volumes.
    """
    table = models.ServerVersion
    return _count(session, table, table.project_id == project_id,
                  table.volume_id.is_(None),
                  table.state != states.ERROR)


def version_mib(session: orm.Session, project_id: str) -> int:
    """Return the MiB of a project's store, rounded up.

    Of a store whose size no agent reported, the sum of what its versions
    added.
    """
    found = session.get(models.VersionStore, project_id)
    if found is not None and found.bytes is not None:
        return -(-found.bytes // _MIB)
    table = models.ServerVersion
    total = session.scalar(sa.select(sa.func.sum(table.bytes_stored)).where(
        table.project_id == project_id))
    return -(-int(total or 0) // _MIB)


def policies(session: orm.Session, project_id: str) -> int:
    """Return the number of version policies."""
    table = models.VersionPolicy
    return _count(session, table, table.project_id == project_id)


def open_tasks(session: orm.Session, project_id: str) -> int:
    """Return the number of tasks of users that have not ended."""
    table = models.VersionTask
    return _count(session, table, table.project_id == project_id,
                  table.kind.in_(_COUNTED),
                  # Cinder's backups are saves without a server.
                  sa.or_(table.kind != states.SAVE,
                         table.server_id.is_not(None)),
                  table.state.not_in(states.ENDED))


def open_jobs(session: orm.Session, project_id: str) -> int:
    """Return the number of precache jobs that have not ended."""
    table = models.PrecacheJob
    return _count(session, table, table.project_id == project_id,
                  table.state.in_(precache.LIVING))


def _count(session, table, *conditions):
    return session.scalar(sa.select(sa.func.count()).select_from(table).where(
        *conditions))
