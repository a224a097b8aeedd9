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
"""Images that arrive while servers run."""

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.models import tables


class Hydration(tables.Base):
    """The image that a server runs from while it arrives on a host.

    ``document`` is JSON: what the host reports. The project is the one that
    Nova names, None while it names none.
    """

    __tablename__ = 'hydrations'
    __table_args__ = (
        sa.Index('ix_hydrations_host_id', 'host_id'),
        sa.Index('ix_hydrations_project_id', 'project_id'),
        tables.TABLE_OPTIONS,
    )

    server_id: orm.Mapped[str] = orm.mapped_column(sa.String(128),
                                                   primary_key=True)
    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'))
    project_id: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    image_id: orm.Mapped[str] = orm.mapped_column(tables.IMAGE)
    content_id: orm.Mapped[str] = orm.mapped_column(tables.HASH)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(32))
    document: orm.Mapped[str] = orm.mapped_column(sa.Text)
    updated_at: orm.Mapped[datetime.datetime]


class Profile(tables.Base):
    """What instances read of an image, summed over hosts.

    ``label`` groups servers that read alike: a flavor's name, or what the user
    chose. An empty ``project_id`` is a profile of all projects. ``rows`` are
    packed by :mod:`diffcache_openstack.prefetch.profiles`.

    ``carried_rows`` are those of another image's profile, at this image's
    chunks, until enough instances have read this one; ``carried_from`` is that
    image, ``carried_instances`` the number of instances that it had then, 0
    of an image that is too different for a patch.
    """

    __tablename__ = 'profiles'
    __table_args__ = (
        sa.UniqueConstraint('image_id', 'project_id', 'label',
                            name='uniq_profiles_subject'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(sa.String(36), primary_key=True)
    image_id: orm.Mapped[str] = orm.mapped_column(
        tables.IMAGE, sa.ForeignKey('images.id', ondelete='CASCADE'))
    project_id: orm.Mapped[str] = orm.mapped_column(sa.String(128))
    label: orm.Mapped[str] = orm.mapped_column(sa.String(128))
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    instances: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    chunks: orm.Mapped[int]
    rows: orm.Mapped[bytes] = orm.mapped_column(tables.PACKED)
    created_at: orm.Mapped[datetime.datetime]
    updated_at: orm.Mapped[datetime.datetime]
    carried_from: orm.Mapped[str | None] = orm.mapped_column(tables.IMAGE)
    carried_instances: orm.Mapped[int | None] = orm.mapped_column(
        sa.BigInteger)
    carried_chunks: orm.Mapped[int | None]
    carried_rows: orm.Mapped[bytes | None] = orm.mapped_column(tables.PACKED)


class BootSetHost(tables.Base):
    """A host that serves images while they arrive, and so may have boot sets.

    ``generation`` is that of the sets planned for it.
    """

    __tablename__ = 'boot_set_hosts'

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    generation: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    reported_at: orm.Mapped[datetime.datetime]


class BootSet(tables.Base):
    """The chunks that boots read of a content, at one host.

    ``wanted`` is whether the plan, or a precache job (``pinned``), wants it
    there; ``bytes`` is its size, and ``rows`` are packed like those of
    profiles. ``requests`` are boots by day, each of which would wait
    ``wait_seconds`` without the set; ``saved_seconds`` by day are those of all
    boots of the site. ``state``, ``held_bytes`` and ``message`` are the
    host's.
    """

    __tablename__ = 'boot_sets'
    __table_args__ = (
        sa.Index('ix_boot_sets_content_id', 'content_id'),
        tables.TABLE_OPTIONS,
    )

    host_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)
    content_id: orm.Mapped[str] = orm.mapped_column(tables.HASH,
                                                    primary_key=True)
    image_id: orm.Mapped[str] = orm.mapped_column(tables.IMAGE)
    wanted: orm.Mapped[bool]
    pinned: orm.Mapped[bool]
    rows: orm.Mapped[bytes] = orm.mapped_column(tables.PACKED)
    bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    requests: orm.Mapped[float]
    wait_seconds: orm.Mapped[float]
    from_peer: orm.Mapped[bool]
    saved_seconds: orm.Mapped[float]
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    held_bytes: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    message: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    updated_at: orm.Mapped[datetime.datetime]


class ProfileContribution(tables.Base):
    """What one host has reported of a profile; an empty host is an import.

    ``run`` and ``number`` are those of the last report; ``past`` are the rows
    of former runs, ``rows`` those of this one. ``aged_at`` is when it last had
    what others reported halved.
    """

    __tablename__ = 'profile_contributions'

    profile_id: orm.Mapped[str] = orm.mapped_column(
        sa.String(36), sa.ForeignKey('profiles.id', ondelete='CASCADE'),
        primary_key=True)
    host: orm.Mapped[str] = orm.mapped_column(tables.HOST, primary_key=True)
    run: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    number: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    aged_at: orm.Mapped[datetime.datetime | None]
    past: orm.Mapped[bytes] = orm.mapped_column(tables.PACKED)
    rows: orm.Mapped[bytes] = orm.mapped_column(tables.PACKED)
