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
"""The catalogue: images, patches, and the search for pairs."""

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.models import tables


class Image(tables.Base):
    """An image."""

    __tablename__ = 'images'
    __table_args__ = (
        sa.Index('ix_images_content_id', 'content_id'),
        sa.Index('ix_images_family', 'family'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(tables.IMAGE, primary_key=True)
    name: orm.Mapped[str] = orm.mapped_column(sa.String(255))
    content_id: orm.Mapped[str] = orm.mapped_column(tables.HASH)
    size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    data_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    created_at: orm.Mapped[datetime.datetime]
    disk_format: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    file_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    os_hash_algo: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    os_hash_value: orm.Mapped[str | None] = orm.mapped_column(sa.String(128))
    owner: orm.Mapped[str | None] = orm.mapped_column(sa.String(255))
    visibility: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    status: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    form_id: orm.Mapped[str | None] = orm.mapped_column(tables.HASH)
    form_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    family: orm.Mapped[str | None] = orm.mapped_column(tables.IMAGE)
    record: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
    compressed_size: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    members: orm.Mapped[list['ImageMember']] = orm.relationship(
        cascade='all, delete-orphan', passive_deletes=True, lazy='subquery')


class ImageMember(tables.Base):
    """A project that a shared image is shared with."""

    __tablename__ = 'image_members'
    __table_args__ = (
        sa.Index('ix_image_members_member', 'member'),
        tables.TABLE_OPTIONS,
    )

    image_id: orm.Mapped[str] = orm.mapped_column(
        tables.IMAGE, sa.ForeignKey('images.id', ondelete='CASCADE'),
        primary_key=True)
    member: orm.Mapped[str] = orm.mapped_column(sa.String(255),
                                                primary_key=True)


class Patch(tables.Base):
    """A patch between two contents; each pair has one at most."""

    __tablename__ = 'patches'
    __table_args__ = (
        sa.UniqueConstraint('base', 'target', name='uniq_patches_pair'),
        sa.Index('ix_patches_target', 'target'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[str] = orm.mapped_column(tables.HASH, primary_key=True)
    base: orm.Mapped[str] = orm.mapped_column(tables.HASH)
    target: orm.Mapped[str] = orm.mapped_column(tables.HASH)
    size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    create_seconds: orm.Mapped[float]
    apply_seconds: orm.Mapped[float]
    created_at: orm.Mapped[datetime.datetime]


class Sketch(tables.Base):
    """An active content, and how far the search for similar ones is.

    ``state`` is new (a repository has to sketch it), due (similar images have
    to be searched for) or known. ``retry_at`` is when one that could not be
    read may be offered again. ``requests`` are those of the planner's horizon.
    """

    __tablename__ = 'sketches'
    __table_args__ = (
        sa.UniqueConstraint('content_id', name='uniq_sketches_content_id'),
        sa.Index('ix_sketches_state', 'state'),
        tables.TABLE_OPTIONS,
    )

    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    content_id: orm.Mapped[str] = orm.mapped_column(tables.HASH)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    data_size: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
    requests: orm.Mapped[int] = orm.mapped_column(sa.BigInteger, default=0)
    retry_at: orm.Mapped[datetime.datetime | None]


class SketchKey(tables.Base):
    """A place of a content in an index of similar ones.

    Rows are sorted by tree and label: neighbours share a prefix.
    """

    __tablename__ = 'sketch_keys'
    __table_args__ = (
        sa.Index('ix_sketch_keys_sketch_id', 'sketch_id'),
        tables.TABLE_OPTIONS,
    )

    tree: orm.Mapped[int] = orm.mapped_column(
        sa.SmallInteger, primary_key=True, autoincrement=False)
    label: orm.Mapped[str] = orm.mapped_column(sa.String(36),
                                               primary_key=True)
    sketch_id: orm.Mapped[int] = orm.mapped_column(
        sa.ForeignKey('sketches.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)


class PatchPair(tables.Base):
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
        tables.TABLE_OPTIONS,
    )

    base: orm.Mapped[str] = orm.mapped_column(tables.HASH, primary_key=True)
    target: orm.Mapped[str] = orm.mapped_column(tables.HASH, primary_key=True)
    state: orm.Mapped[str] = orm.mapped_column(sa.String(16))
    likeness: orm.Mapped[int] = orm.mapped_column(default=0)
    size: orm.Mapped[int | None] = orm.mapped_column(sa.BigInteger)
    place: orm.Mapped[int | None]
    saving: orm.Mapped[float] = orm.mapped_column(sa.Double, default=0.0)
    host: orm.Mapped[str | None] = orm.mapped_column(tables.HOST)
    free_at: orm.Mapped[datetime.datetime | None]
    attempts: orm.Mapped[int] = orm.mapped_column(default=0)
    terms: orm.Mapped[str | None] = orm.mapped_column(sa.String(64))
    reason: orm.Mapped[str | None] = orm.mapped_column(sa.Text)
