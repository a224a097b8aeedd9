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
"""SSD caches of hosts, and the volumes in them."""

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.models import tables


class SsdCache(tables.Base):
    """The SSD cache of a host; ``decisions`` is a JSON list."""

    __tablename__ = 'ssd_caches'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    capacity: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    policy: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    epoch: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    decisions: orm.Mapped[str] = orm.mapped_column(sa.Text)
    updated_at: orm.Mapped[datetime.datetime]


class VolumeCache(tables.Base):
    """A volume in the SSD cache of the host of its server.

    ``document`` and ``curve`` are JSON: what the host reports. The server and
    its project are those that Nova names, None while it names none.
    ``working_set`` is in blocks.
    """

    __tablename__ = 'volume_caches'
    __table_args__ = (
        sa.Index('ix_volume_caches_host_id', 'host_id'),
        sa.Index('ix_volume_caches_project_id', 'project_id'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(tables.IMAGE, primary_key=True)
    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'))
    server_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    mode: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    document: orm.Mapped[str] = orm.mapped_column(sa.Text)
    curve: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    working_set: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0)
    updated_at: orm.Mapped[datetime.datetime]
