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
"""Sites, their hosts, and what hosts report."""

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.models import tables


class Site(tables.Base):
    """A site, with the generations that guard what is computed for it."""

    __tablename__ = 'sites'

    name: orm.Mapped[str] = orm.mapped_column(tables.SITE, primary_key=True)
    map_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    plan_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    planned_at: orm.Mapped[datetime.datetime | None]
    map_floor: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0)


class MapChange(tables.Base):
    """Something of a site's map that a generation changed.

    ``what`` is an image, a patch, a host, a holding of a host or all of its
    holdings; ``name`` is its id, or the host's name. The changes after the
    site's ``map_floor`` are complete.
    """

    __tablename__ = 'map_changes'
    __table_args__ = (
        sa.Index('ix_map_changes_site_generation', 'site', 'generation'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    site: orm.Mapped[str] = orm.mapped_column(tables.SITE)
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    what: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    kind: orm.Mapped[str | None] = orm.mapped_column(tables.KIND)
    object_id: orm.Mapped[str | None] = orm.mapped_column(tables.HASH)


class Host(tables.Base):
    """A host that runs an agent.

    ``held_objects`` and ``held_bytes`` are the sums of its holdings, so that a
    report of changes is compared with the host's sums without counting rows.
    """

    __tablename__ = 'hosts'
    __table_args__ = (
        sa.UniqueConstraint('name', name='uniq_hosts_name'),
        sa.Index('ix_hosts_site', 'site'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(tables.HOST)
    site: orm.Mapped[str] = orm.mapped_column(tables.SITE,
                                              sa.ForeignKey('sites.name'))
    role: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    url: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    capacity: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    alive: orm.Mapped[bool]
    plan_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    seen_at: orm.Mapped[datetime.datetime]
    held_objects: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0)
    held_bytes: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0)


class Holding(tables.Base):
    """An object on a host."""

    __tablename__ = 'holdings'
    __table_args__ = (
        sa.Index('ix_holdings_object_id', 'object_id'),
        tables.TABLE_OPTIONS,
    )

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(tables.KIND, primary_key=True)
    object_id: orm.Mapped[str] = orm.mapped_column(tables.HASH,
                                                   primary_key=True)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)


class Borrowed(tables.Base):
    """An image that a host reads from a file of another service."""

    __tablename__ = 'borrowed'
    __table_args__ = (tables.TABLE_OPTIONS,)

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    object_id: orm.Mapped[str] = orm.mapped_column(tables.HASH,
                                                   primary_key=True)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)


class Fill(tables.Base):
    """An object that a plan places on a host and that is not there yet.

    ``active`` means that it is being transferred, ``attempts`` counts failures
    since the host was assigned it.
    """

    __tablename__ = 'fills'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    kind: orm.Mapped[str] = orm.mapped_column(tables.KIND, primary_key=True)
    object_id: orm.Mapped[str] = orm.mapped_column(tables.HASH,
                                                   primary_key=True)
    active: orm.Mapped[bool]
    bytes_total: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_done: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    attempts: orm.Mapped[int]
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    retry_at: orm.Mapped[datetime.datetime | None]


class PendingImage(tables.Base):
    """An image that a repository could not add yet."""

    __tablename__ = 'pending_images'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    image_id: orm.Mapped[str] = orm.mapped_column(tables.IMAGE,
                                                  primary_key=True)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    attempts: orm.Mapped[int]
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    retry_at: orm.Mapped[datetime.datetime | None]


class HostNetwork(tables.Base):
    """When a host fills its cache, and what it measured of its links.

    ``fill_windows`` is a JSON list.
    """

    __tablename__ = 'host_networks'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    fill_rate: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    fill_windows: orm.Mapped[str] = orm.mapped_column(sa.Text)
    peer_mbps: orm.Mapped[float | None]


class RepositoryStanding(tables.Base):
    """A repository as one host sees it."""

    __tablename__ = 'repository_standings'
    __table_args__ = (
        sa.Index('ix_repository_standings_name', 'name'),
        tables.TABLE_OPTIONS,
    )

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    name: orm.Mapped[str] = orm.mapped_column(tables.HOST, primary_key=True)
    answers: orm.Mapped[bool]
    since: orm.Mapped[datetime.datetime | None]
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    mbps: orm.Mapped[float | None]
    transfers: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    failures: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
