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
"""Requests, plans and precache jobs."""

import datetime
import uuid

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.models import tables


class Request(tables.Base):
    """A request that an agent answered.

    Names its host and image by value: history outlives both.
    """

    __tablename__ = 'requests'
    __table_args__ = (
        sa.Index('ix_requests_site_started_at', 'site', 'started_at'),
        sa.Index('ix_requests_started_at', 'started_at'),
        sa.Index('ix_requests_way_started_at', 'way', 'started_at'),
        sa.Index('ix_requests_host_image_id', 'host', 'image_id',
                 'started_at'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    image_id: orm.Mapped[str] = orm.mapped_column(tables.IMAGE)
    content_id: orm.Mapped[str | None] = orm.mapped_column(tables.HASH)
    host: orm.Mapped[str] = orm.mapped_column(tables.HOST)
    site: orm.Mapped[str] = orm.mapped_column(tables.SITE)
    mode: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    way: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    detail: orm.Mapped[str] = orm.mapped_column(sa.Text)
    seconds: orm.Mapped[float]
    predicted_seconds: orm.Mapped[float | None]
    wan_bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    lan_bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    fallbacks: orm.Mapped[int]
    patch_id: orm.Mapped[str | None] = orm.mapped_column(tables.HASH)
    apply_seconds: orm.Mapped[float]
    started_at: orm.Mapped[datetime.datetime]
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)


class Plan(tables.Base):
    """A plan of a site. Older ones stay for reference until pruned.

    A plan that is being computed, or was only proposed, has no generation;
    ``base_generation`` is that of the current plan when it was started.
    """

    __tablename__ = 'plans'
    __table_args__ = (
        sa.UniqueConstraint('site', 'generation',
                            name='uniq_plans_site_generation'),
        sa.UniqueConstraint('uuid', name='uniq_plans_uuid'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    uuid: orm.Mapped[str] = orm.mapped_column(
        sa.String(36), default=lambda: str(uuid.uuid4()))
    site: orm.Mapped[str] = orm.mapped_column(tables.SITE,
                                              sa.ForeignKey('sites.name'))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16),
                                               default='applied')
    generation: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    base_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger,
                                                         default=0)
    changes: orm.Mapped[str] = orm.mapped_column(sa.Text, default='{}')
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    solver: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    cost_s: orm.Mapped[float]
    lower_bound_s: orm.Mapped[float]
    proved_optimal: orm.Mapped[bool]
    solver_seconds: orm.Mapped[float]
    created_at: orm.Mapped[datetime.datetime]
    move_wan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    move_lan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    fill_seconds: orm.Mapped[float | None]
    saved_seconds: orm.Mapped[float | None]
    saved_wan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    objective: orm.Mapped[str | None] = orm.mapped_column(sa.String(16))
    cost_wan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)


class PlanHost(tables.Base):
    """A host that a plan was made for, be it to hold nothing."""

    __tablename__ = 'plan_hosts'

    plan_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('plans.id', ondelete='CASCADE'), primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(tables.HOST, primary_key=True)


class PlanItem(tables.Base):
    """What a plan places on a host."""

    __tablename__ = 'plan_items'

    plan_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('plans.id', ondelete='CASCADE'), primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(tables.HOST, primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(tables.KIND, primary_key=True)
    object_id: orm.Mapped[str] = orm.mapped_column(tables.HASH,
                                                   primary_key=True)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    priority: orm.Mapped[int]
    saved_seconds: orm.Mapped[float]


class PrecacheJob(tables.Base):
    """Images to cache before they are requested, and on which hosts.

    Lists are JSON texts. ``is_open``: the time window is open now;
    ``dirty``: plans have to be computed again.
    """

    __tablename__ = 'precache_jobs'
    __table_args__ = (
        sa.Index('ix_precache_jobs_state', 'state'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    user_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    images: orm.Mapped[str] = orm.mapped_column(sa.Text)
    families: orm.Mapped[str] = orm.mapped_column(sa.Text)
    hosts: orm.Mapped[str] = orm.mapped_column(sa.Text)
    aggregates: orm.Mapped[str] = orm.mapped_column(sa.Text)
    availability_zones: orm.Mapped[str] = orm.mapped_column(sa.Text)
    priority: orm.Mapped[int]
    rate: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    window: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    pinned: orm.Mapped[bool]
    boot_set: orm.Mapped[bool] = orm.mapped_column(
        default=False)
    is_open: orm.Mapped[bool]
    dirty: orm.Mapped[bool]
    message: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    created_at: orm.Mapped[datetime.datetime]
    updated_at: orm.Mapped[datetime.datetime]
    expires_at: orm.Mapped[datetime.datetime | None]


class PrecacheTarget(tables.Base):
    """An image of a precache job at one host, and how far it is."""

    __tablename__ = 'precache_targets'
    __table_args__ = (
        sa.Index('ix_precache_targets_host', 'host'),
        tables.TABLE_OPTIONS,
    )

    job_id: orm.Mapped[str] = orm.mapped_column(
        sa.ForeignKey('precache_jobs.id', ondelete='CASCADE'),
        primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(tables.HOST, primary_key=True)
    image_id: orm.Mapped[str] = orm.mapped_column(tables.IMAGE,
                                                  primary_key=True)
    content_id: orm.Mapped[str | None] = orm.mapped_column(tables.HASH)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    way: orm.Mapped[str | None] = orm.mapped_column(sa.String(16))
    bytes_total: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_done: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    retry_at: orm.Mapped[datetime.datetime | None]
    message: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    updated_at: orm.Mapped[datetime.datetime]


class Lease(tables.Base):
    """A lease: which conductor may do what only one at a time may do."""

    __tablename__ = 'leases'

    name: orm.Mapped[str] = orm.mapped_column(sa.String(128),
                                              primary_key=True)
    owner: orm.Mapped[str] = orm.mapped_column(tables.HOST)
    expires_at: orm.Mapped[datetime.datetime]
