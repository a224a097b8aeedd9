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
"""Versions of servers, and the tasks on them."""

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.models import tables


class ServerVersion(tables.Base):
    """A version of a server, or of a volume: its disks at an instant.

    ``disks`` is JSON: what the store has of each. ``image_id`` is the image
    that it was exported as.
    """

    __tablename__ = 'versions'
    __table_args__ = (
        sa.Index('ix_versions_server_id', 'server_id'),
        sa.Index('ix_versions_volume_id', 'volume_id'),
        sa.Index('ix_versions_project_id', 'project_id'),
        sa.Index('ix_versions_state_updated_at', 'state', 'updated_at'),
        sa.Index('ix_versions_parent_id', 'parent_id'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    description: orm.Mapped[str] = orm.mapped_column(sa.Text)
    server_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    # Of a backup, which has the same id as in Cinder.
    volume_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    volume_metadata: orm.Mapped[str] = orm.mapped_column(sa.Text)
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    user_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    parent_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    trigger: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    protected: orm.Mapped[bool]
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    alpha: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    host: orm.Mapped[str | None] = orm.mapped_column(tables.HOST)
    base_image: orm.Mapped[str | None] = orm.mapped_column(tables.IMAGE)
    image_id: orm.Mapped[str | None] = orm.mapped_column(tables.IMAGE)
    size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_changed: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_read: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_stored: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    seconds: orm.Mapped[float | None]
    pause_ms: orm.Mapped[float | None]
    frozen_ms: orm.Mapped[float | None]
    quiesced: orm.Mapped[bool]
    disks: orm.Mapped[str] = orm.mapped_column(sa.Text)
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    error_code: orm.Mapped[str | None] = orm.mapped_column(sa.String(32))
    created_at: orm.Mapped[datetime.datetime]
    updated_at: orm.Mapped[datetime.datetime]
    # When the store had all of it.
    saved_at: orm.Mapped[datetime.datetime | None]


class VersionTask(tables.Base):
    """Work on versions; ``task`` and ``result`` are JSON.

    ``sent_at`` is when it was sent to its host last, ``seen_at`` when that
    host last reported it, ``leased_until`` when it loses the task unless it
    reports. ``cancelling`` tells the host to end it.
    """

    __tablename__ = 'version_tasks'
    __table_args__ = (
        sa.Index('ix_version_tasks_project_id', 'project_id', 'created_at'),
        sa.Index('ix_version_tasks_state_updated_at', 'state', 'updated_at'),
        sa.Index('ix_version_tasks_version_id', 'version_id'),
        sa.Index('ix_version_tasks_server_id', 'server_id'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    server_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    version_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    host: orm.Mapped[str | None] = orm.mapped_column(tables.HOST)
    task: orm.Mapped[str] = orm.mapped_column(sa.Text)
    done: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    total: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    result: orm.Mapped[str] = orm.mapped_column(sa.Text)
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    error_code: orm.Mapped[str | None] = orm.mapped_column(sa.String(32))
    created_at: orm.Mapped[datetime.datetime]
    updated_at: orm.Mapped[datetime.datetime]
    sent_at: orm.Mapped[datetime.datetime | None]
    seen_at: orm.Mapped[datetime.datetime | None]
    leased_until: orm.Mapped[datetime.datetime | None]
    cancelling: orm.Mapped[bool] = orm.mapped_column(default=False)


class VersionStore(tables.Base):
    """A project's store of versions: its size, and what it is due for.

    ``bytes`` is what agents report. ``unpruned_since`` is the first deletion
    that no prune followed, ``deleted_at`` the last deletion, ``rekeying``
    whether packs are left that have a former key. What was saved until
    ``copied_at`` is in the copy of the store. The tasks themselves are
    forgotten earlier than what these say.
    """

    __tablename__ = 'version_stores'

    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255),
                                                    primary_key=True)
    bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    unpruned_since: orm.Mapped[datetime.datetime | None]
    deleted_at: orm.Mapped[datetime.datetime | None]
    prune_tried_at: orm.Mapped[datetime.datetime | None]
    verified_at: orm.Mapped[datetime.datetime | None]
    verify_tried_at: orm.Mapped[datetime.datetime | None]
    copied_at: orm.Mapped[datetime.datetime | None]
    copy_tried_at: orm.Mapped[datetime.datetime | None]
    rekeying: orm.Mapped[bool] = orm.mapped_column(default=False)
    created_at: orm.Mapped[datetime.datetime]


class VersionHead(tables.Base):
    """The head of a project's store of versions: the last catalogue.

    ``place`` is a hash of the store's URI. ``digest`` is the checksum of the
    catalogue's blob, ``host`` the host that committed it. ``next_pack`` and
    the like are numbers that no writer has taken.
    """

    __tablename__ = 'version_heads'

    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255),
                                                    primary_key=True)
    place: orm.Mapped[str] = orm.mapped_column(sa.String(64),
                                               primary_key=True)
    number: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    digest: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    host: orm.Mapped[str] = orm.mapped_column(tables.HOST)
    next_pack: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    next_map: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    next_version: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    updated_at: orm.Mapped[datetime.datetime]


class VersionPolicy(tables.Base):
    """When servers are saved; an empty ``server_id`` is the project's."""

    __tablename__ = 'version_policies'
    __table_args__ = (
        sa.UniqueConstraint('project_id', 'server_id',
                            name='uniq_version_policies_subject'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    server_id: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    every: orm.Mapped[int | None]
    keep_last: orm.Mapped[int]
    keep_hourly: orm.Mapped[int]
    keep_daily: orm.Mapped[int]
    keep_weekly: orm.Mapped[int]
    keep_monthly: orm.Mapped[int]
    on_shutdown: orm.Mapped[bool]
    on_delete: orm.Mapped[bool]
    required: orm.Mapped[bool]
    volumes: orm.Mapped[bool]
    alpha: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    created_at: orm.Mapped[datetime.datetime]
    updated_at: orm.Mapped[datetime.datetime]
