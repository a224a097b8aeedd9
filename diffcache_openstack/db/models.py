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
"""The conductor's tables.

Sizes are bytes, times UTC. Names are compared byte by byte on every engine;
MariaDB needs a collation for it.
"""

import datetime
import uuid

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy import orm

from diffcache_openstack.common import exceptions

TABLE_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}

HASH = sa.String(64)
KIND = sa.String(16)
HOST = sa.String(255)
SITE = sa.String(64)
TEMPLATE = sa.String(128)
PACKED = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')


class UTCDateTime(sa.types.TypeDecorator):
    """An instant to the microsecond; databases are given UTC without zone."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect):
        """Ask MariaDB for microseconds, which it drops by default."""
        if dialect.name in ('mysql', 'mariadb'):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value, dialect):
        """Convert an aware datetime to naive UTC."""
        if value is None:
            return None
        return value.astimezone(datetime.UTC).replace(tzinfo=None)

    def process_result_value(self, value, dialect):
        """Convert the stored datetime to an aware one."""
        return None if value is None else value.replace(tzinfo=datetime.UTC)


class Base(orm.DeclarativeBase):
    """All tables."""

    __table_args__ = TABLE_OPTIONS


class Site(Base):
    """A site, with the generations that guard what is computed for it."""

    __tablename__ = 'sites'

    name: orm.Mapped[str] = orm.mapped_column(SITE, primary_key=True)
    map_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    plan_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    planned_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    map_floor: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0, server_default='0')


class MapChange(Base):
    """Something of a site's map that a generation changed.

    ``what`` is a template, a patch, a host, a holding of a host or all of its
    holdings; ``name`` is its id, or the host's name. The changes after the
    site's ``map_floor`` are complete.
    """

    __tablename__ = 'map_changes'
    __table_args__ = (
        sa.Index('ix_map_changes_site_generation', 'site', 'generation'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    site: orm.Mapped[str] = orm.mapped_column(SITE)
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    what: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    kind: orm.Mapped[str | None] = orm.mapped_column(KIND)
    object_id: orm.Mapped[str | None] = orm.mapped_column(HASH)


class Host(Base):
    """A host that runs an agent.

    ``held_objects`` and ``held_bytes`` are the sums of its holdings, so that a
    report of changes is compared with the host's sums without counting rows.
    """

    __tablename__ = 'hosts'
    __table_args__ = (
        sa.UniqueConstraint('name', name='uniq_hosts_name'),
        sa.Index('ix_hosts_site', 'site'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(HOST)
    site: orm.Mapped[str] = orm.mapped_column(SITE,
                                              sa.ForeignKey('sites.name'))
    role: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    url: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    capacity: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    alive: orm.Mapped[bool]
    plan_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    seen_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    held_objects: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0, server_default='0')
    held_bytes: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0, server_default='0')


class Holding(Base):
    """An object on a host."""

    __tablename__ = 'holdings'
    __table_args__ = (
        sa.Index('ix_holdings_object_id', 'object_id'),
        TABLE_OPTIONS,
    )

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(KIND, primary_key=True)
    object_id: orm.Mapped[str] = orm.mapped_column(HASH, primary_key=True)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)


class Borrowed(Base):
    """A template that a host reads from a file of another service."""

    __tablename__ = 'borrowed'
    __table_args__ = (TABLE_OPTIONS,)

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    object_id: orm.Mapped[str] = orm.mapped_column(HASH, primary_key=True)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)


class Fill(Base):
    """An object that a plan places on a host and that is not there yet.

    ``active`` means that it is being transferred, ``attempts`` counts failures
    since the host was assigned it.
    """

    __tablename__ = 'fills'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    kind: orm.Mapped[str] = orm.mapped_column(KIND, primary_key=True)
    object_id: orm.Mapped[str] = orm.mapped_column(HASH, primary_key=True)
    active: orm.Mapped[bool]
    bytes_total: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_done: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    attempts: orm.Mapped[int]
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    retry_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)


class PendingImage(Base):
    """An image that a repository could not add yet."""

    __tablename__ = 'pending_images'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    image_id: orm.Mapped[str] = orm.mapped_column(TEMPLATE, primary_key=True)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    attempts: orm.Mapped[int]
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    retry_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)


class HostNetwork(Base):
    """When a host fills its cache, and what it measured of its links.

    ``fill_windows`` is a JSON list.
    """

    __tablename__ = 'host_networks'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    fill_rate: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    fill_windows: orm.Mapped[str] = orm.mapped_column(sa.Text)
    peer_mbps: orm.Mapped[float | None] = orm.mapped_column(sa.Double)


class SsdCache(Base):
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
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class VolumeCache(Base):
    """A volume in the SSD cache of the host of its server.

    ``document`` and ``curve`` are JSON: what the host reports. The server and
    its project are those that Nova names, None while it names none.
    ``working_set`` is in blocks.
    """

    __tablename__ = 'volume_caches'
    __table_args__ = (
        sa.Index('ix_volume_caches_host_id', 'host_id'),
        sa.Index('ix_volume_caches_project_id', 'project_id'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(TEMPLATE, primary_key=True)
    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'))
    server_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    mode: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    document: orm.Mapped[str] = orm.mapped_column(sa.Text)
    curve: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    # Services of the release before insert rows without it.
    working_set: orm.Mapped[int] = orm.mapped_column(
        sa.BigInteger, default=0, server_default='0')
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class RepositoryStanding(Base):
    """A repository as one host sees it."""

    __tablename__ = 'repository_standings'
    __table_args__ = (
        sa.Index('ix_repository_standings_name', 'name'),
        TABLE_OPTIONS,
    )

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    name: orm.Mapped[str] = orm.mapped_column(HOST, primary_key=True)
    answers: orm.Mapped[bool]
    since: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    mbps: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    transfers: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    failures: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)


class Template(Base):
    """An image."""

    __tablename__ = 'templates'
    __table_args__ = (
        sa.Index('ix_templates_content_id', 'content_id'),
        sa.Index('ix_templates_family', 'family'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(TEMPLATE, primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    content_id: orm.Mapped[str] = orm.mapped_column(HASH)
    size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    data_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    disk_format: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    file_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    os_hash_algo: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    os_hash_value: orm.Mapped[str | None] = orm.mapped_column(sa.String(128))
    owner: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    visibility: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    status: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    form_id: orm.Mapped[str | None] = orm.mapped_column(HASH)
    form_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    family: orm.Mapped[str | None] = orm.mapped_column(TEMPLATE)
    record: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    compressed_size: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    members: orm.Mapped[list['TemplateMember']] = orm.relationship(
        cascade='all, delete-orphan', passive_deletes=True, lazy='subquery')


class TemplateMember(Base):
    """A project that a shared image is shared with."""

    __tablename__ = 'template_members'
    __table_args__ = (
        sa.Index('ix_template_members_member', 'member'),
        TABLE_OPTIONS,
    )

    template_id: orm.Mapped[str] = orm.mapped_column(
        TEMPLATE, sa.ForeignKey('templates.id', ondelete='CASCADE'),
        primary_key=True)
    member: orm.Mapped[str] = orm.mapped_column(sa.String(255),
                                                primary_key=True)


class Patch(Base):
    """A patch between two contents; each pair has one at most."""

    __tablename__ = 'patches'
    __table_args__ = (
        sa.UniqueConstraint('base', 'target', name='uniq_patches_pair'),
        sa.Index('ix_patches_target', 'target'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(HASH, primary_key=True)
    base: orm.Mapped[str] = orm.mapped_column(HASH)
    target: orm.Mapped[str] = orm.mapped_column(HASH)
    size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    create_seconds: orm.Mapped[float] = orm.mapped_column(sa.Double)
    apply_seconds: orm.Mapped[float] = orm.mapped_column(sa.Double)
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class Sketch(Base):
    """An active content, and how far the search for similar ones is.

    ``state`` is new (a repository has to sketch it), due (similar images have
    to be searched for) or known. ``retry_at`` is when one that could not be
    read may be offered again. ``requests`` are those of the planner's horizon.
    """

    __tablename__ = 'sketches'
    __table_args__ = (
        sa.UniqueConstraint('content_id', name='uniq_sketches_content_id'),
        sa.Index('ix_sketches_state', 'state'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    content_id: orm.Mapped[str] = orm.mapped_column(HASH)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    data_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    requests: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, default=0)
    retry_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)


class SketchKey(Base):
    """A place of a content in an index of similar ones.

    Rows are sorted by tree and label: neighbours share a prefix.
    """

    __tablename__ = 'sketch_keys'
    __table_args__ = (
        sa.Index('ix_sketch_keys_sketch_id', 'sketch_id'),
        TABLE_OPTIONS,
    )

    tree: orm.Mapped[int] = orm.mapped_column(
        sa.SmallInteger, primary_key=True, autoincrement=False)
    label: orm.Mapped[str] = orm.mapped_column(sa.String(36),
                                               primary_key=True)
    sketch_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('sketches.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)


class PatchPair(Base):
    """Two similar contents, and what is known of the patch between them.

    ``state`` is found (to be estimated), wanted, declined or made. ``size`` is
    the patch's, estimated until it was created; ``place`` counts the target's
    bases from the one with the smallest patch. ``saving`` is what decides on
    the order. The host that creates a patch has it until ``free_at``; after a
    failure the pair waits until then. ``terms`` are those that the host
    declined it by.
    """

    __tablename__ = 'patch_pairs'
    __table_args__ = (
        sa.Index('ix_patch_pairs_host_terms', 'host', 'terms'),
        sa.Index('ix_patch_pairs_target', 'target'),
        sa.Index('ix_patch_pairs_state_saving', 'state', 'saving'),
        TABLE_OPTIONS,
    )

    base: orm.Mapped[str] = orm.mapped_column(HASH, primary_key=True)
    target: orm.Mapped[str] = orm.mapped_column(HASH, primary_key=True)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    likeness: orm.Mapped[int] = orm.mapped_column(default=0)
    size: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    place: orm.Mapped[int | None]
    saving: orm.Mapped[float] = orm.mapped_column(sa.Double, default=0.0)
    host: orm.Mapped[str | None] = orm.mapped_column(HOST)
    free_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    terms: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)


class Request(Base):
    """A request that an agent answered.

    Names its host and template by value: history outlives both.
    """

    __tablename__ = 'requests'
    __table_args__ = (
        sa.Index('ix_requests_site_started_at', 'site', 'started_at'),
        sa.Index('ix_requests_started_at', 'started_at'),
        sa.Index('ix_requests_host_template_id', 'host', 'template_id',
                 'started_at'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    template_id: orm.Mapped[str] = orm.mapped_column(TEMPLATE)
    content_id: orm.Mapped[str | None] = orm.mapped_column(HASH)
    host: orm.Mapped[str] = orm.mapped_column(HOST)
    site: orm.Mapped[str] = orm.mapped_column(SITE)
    mode: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    way: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    detail: orm.Mapped[str] = orm.mapped_column(sa.Text)
    seconds: orm.Mapped[float] = orm.mapped_column(sa.Double)
    predicted_seconds: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    wan_bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    lan_bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    fallbacks: orm.Mapped[int]
    patch_id: orm.Mapped[str | None] = orm.mapped_column(HASH)
    apply_seconds: orm.Mapped[float] = orm.mapped_column(sa.Double)
    started_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)


class Plan(Base):
    """A plan of a site. Older ones stay for reference until pruned.

    A plan that is being computed, or was only proposed, has no generation;
    ``base_generation`` is that of the current plan when it was started.
    """

    __tablename__ = 'plans'
    __table_args__ = (
        sa.UniqueConstraint('site', 'generation',
                            name='uniq_plans_site_generation'),
        sa.UniqueConstraint('uuid', name='uniq_plans_uuid'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    uuid: orm.Mapped[str] = orm.mapped_column(
        sa.String(36), default=lambda: str(uuid.uuid4()))
    site: orm.Mapped[str] = orm.mapped_column(SITE,
                                              sa.ForeignKey('sites.name'))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16),
                                               default='applied')
    generation: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    base_generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger,
                                                         default=0)
    changes: orm.Mapped[str] = orm.mapped_column(sa.Text, default='{}')
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    solver: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    cost_s: orm.Mapped[float] = orm.mapped_column(sa.Double)
    lower_bound_s: orm.Mapped[float] = orm.mapped_column(sa.Double)
    proved_optimal: orm.Mapped[bool]
    solver_seconds: orm.Mapped[float] = orm.mapped_column(sa.Double)
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    move_wan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    move_lan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    fill_seconds: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    saved_seconds: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    saved_wan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    objective: orm.Mapped[str | None] = orm.mapped_column(sa.String(16))
    cost_wan_bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)


class PlanHost(Base):
    """A host that a plan was made for, be it to hold nothing."""

    __tablename__ = 'plan_hosts'

    plan_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('plans.id', ondelete='CASCADE'), primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(HOST, primary_key=True)


class PlanItem(Base):
    """What a plan places on a host."""

    __tablename__ = 'plan_items'

    plan_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('plans.id', ondelete='CASCADE'), primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(HOST, primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(KIND, primary_key=True)
    object_id: orm.Mapped[str] = orm.mapped_column(HASH, primary_key=True)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    priority: orm.Mapped[int]
    saved_seconds: orm.Mapped[float] = orm.mapped_column(sa.Double)


class PrecacheJob(Base):
    """Images to cache before they are requested, and on which hosts.

    Lists are JSON texts. ``is_open``: the time window is open now;
    ``dirty``: plans have to be computed again.
    """

    __tablename__ = 'precache_jobs'
    __table_args__ = (
        sa.Index('ix_precache_jobs_state', 'state'),
        TABLE_OPTIONS,
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
        default=False, server_default=sa.false())
    is_open: orm.Mapped[bool]
    dirty: orm.Mapped[bool]
    message: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    expires_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)


class PrecacheTarget(Base):
    """An image of a precache job at one host, and how far it is."""

    __tablename__ = 'precache_targets'
    __table_args__ = (
        sa.Index('ix_precache_targets_host', 'host'),
        TABLE_OPTIONS,
    )

    job_id: orm.Mapped[str] = orm.mapped_column(
        sa.ForeignKey('precache_jobs.id', ondelete='CASCADE'),
        primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(HOST, primary_key=True)
    template_id: orm.Mapped[str] = orm.mapped_column(TEMPLATE,
                                                     primary_key=True)
    content_id: orm.Mapped[str | None] = orm.mapped_column(HASH)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    way: orm.Mapped[str | None] = orm.mapped_column(sa.String(16))
    bytes_total: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_done: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    retry_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    message: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class Lease(Base):
    """A lease: which conductor may do what only one at a time may do."""

    __tablename__ = 'leases'

    name: orm.Mapped[str] = orm.mapped_column(sa.String(128),
                                              primary_key=True)
    owner: orm.Mapped[str] = orm.mapped_column(HOST)
    expires_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class Message(Base):
    """A message that was accepted, by the number that its signature has."""

    __tablename__ = 'messages'
    __table_args__ = (
        sa.Index('ix_messages_accepted_at', 'accepted_at'),
        TABLE_OPTIONS,
    )

    nonce: orm.Mapped[str] = orm.mapped_column(sa.String(32),
                                               primary_key=True)
    accepted_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class RevokedKey(Base):
    """A host whose keys are not accepted if they were issued until then.

    ``number`` is that of the revocation: agents tell by the greatest one
    whether their list is the newest.
    """

    __tablename__ = 'revoked_keys'
    __table_args__ = (
        sa.UniqueConstraint('number', name='uq_revoked_keys_number'),
        TABLE_OPTIONS,
    )

    host: orm.Mapped[str] = orm.mapped_column(HOST, primary_key=True)
    revoked_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    number: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)


class ServerVersion(Base):
    """A version of a server: what its disks were at an instant.

    ``disks`` is JSON: what the store has of each. ``image_id`` is the image
    that it was exported as.
    """

    __tablename__ = 'versions'
    __table_args__ = (
        sa.Index('ix_versions_server_id', 'server_id'),
        sa.Index('ix_versions_project_id', 'project_id'),
        sa.Index('ix_versions_parent_id', 'parent_id'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    description: orm.Mapped[str] = orm.mapped_column(sa.Text)
    server_id: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    user_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    request_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    parent_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    trigger: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    protected: orm.Mapped[bool]
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    alpha: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    host: orm.Mapped[str | None] = orm.mapped_column(HOST)
    base_image: orm.Mapped[str | None] = orm.mapped_column(TEMPLATE)
    image_id: orm.Mapped[str | None] = orm.mapped_column(TEMPLATE)
    size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_changed: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_read: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    bytes_stored: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    seconds: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    pause_ms: orm.Mapped[float | None] = orm.mapped_column(sa.Double)
    quiesced: orm.Mapped[bool]
    disks: orm.Mapped[str] = orm.mapped_column(sa.Text)
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    error_code: orm.Mapped[str | None] = orm.mapped_column(sa.String(32))
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class VersionTask(Base):
    """Work on versions; ``task`` and ``result`` are JSON.

    ``sent_at`` is when it was sent to its host last, ``seen_at`` when that
    host last reported it, ``leased_until`` when it loses the task unless it
    reports. ``cancelling`` tells the host to end it.
    """

    __tablename__ = 'version_tasks'
    __table_args__ = (
        sa.Index('ix_version_tasks_state', 'state'),
        sa.Index('ix_version_tasks_version_id', 'version_id'),
        sa.Index('ix_version_tasks_server_id', 'server_id'),
        TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    kind: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    server_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    version_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(36))
    host: orm.Mapped[str | None] = orm.mapped_column(HOST)
    task: orm.Mapped[str] = orm.mapped_column(sa.Text)
    done: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    total: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    result: orm.Mapped[str] = orm.mapped_column(sa.Text)
    error: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    error_code: orm.Mapped[str | None] = orm.mapped_column(sa.String(32))
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    sent_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    seen_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    leased_until: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    cancelling: orm.Mapped[bool] = orm.mapped_column(default=False)


class VersionStore(Base):
    """A project's store of versions: its size, and what it is due for.

    ``bytes`` is what agents report. ``unpruned_since`` is the first deletion
    that no prune followed, ``deleted_at`` the last deletion, ``rekeying``
    whether packs are left that have a former key. The tasks themselves are
    forgotten earlier than what these say.
    """

    __tablename__ = 'version_stores'

    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255),
                                                    primary_key=True)
    bytes: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    unpruned_since: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    deleted_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    prune_tried_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    verified_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    verify_tried_at: orm.Mapped[datetime.datetime | None] = orm.mapped_column(
        UTCDateTime)
    rekeying: orm.Mapped[bool] = orm.mapped_column(default=False)
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class VersionHead(Base):
    """The head of a project's store of versions: the last catalogue.

    ``place`` is a hash of the store's URI. ``digest`` is the checksum of the
    catalogue's blob, ``host`` the host that committed it.
    """

    __tablename__ = 'version_heads'

    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(255),
                                                    primary_key=True)
    place: orm.Mapped[str] = orm.mapped_column(sa.String(64),
                                               primary_key=True)
    number: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    digest: orm.Mapped[str] = orm.mapped_column(sa.String(64))
    host: orm.Mapped[str] = orm.mapped_column(HOST)
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


class VersionPolicy(Base):
    """When servers are saved; an empty ``server_id`` is the project's."""

    __tablename__ = 'version_policies'
    __table_args__ = (
        sa.UniqueConstraint('project_id', 'server_id',
                            name='uniq_version_policies_subject'),
        TABLE_OPTIONS,
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
    alpha: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    created_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)
    updated_at: orm.Mapped[datetime.datetime] = orm.mapped_column(UTCDateTime)


def _check_lengths(mapper, _connection, row):
    """Refuse texts that do not fit, before the database does.

    MariaDB's error would be one of the database, and SQLite has none.

    :raises InvalidInput: a text is longer than its column
    """
    for name, column in mapper.columns.items():
        limit = getattr(column.type, 'length', None)
        value = getattr(row, name)
        if limit and isinstance(value, str) and len(value) > limit:
            raise exceptions.InvalidInput(
                f'The {name} of one of the {mapper.local_table.name} has'
                f' {len(value)} characters, at most {limit} are possible:'
                f' "{value[:40]}..."; choose a shorter one.')


for _event in ('before_insert', 'before_update'):
    sa.event.listen(Base, _event, _check_lengths, propagate=True)
