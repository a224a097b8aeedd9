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

from alembic import op
import sqlalchemy as sa

from diffcache_openstack.db.migrations.initial import columns


def create():
    """Create the tables, each after those that it refers to."""
    _create_images()
    _create_image_members()
    _create_patches()
    _create_sketches()
    _create_sketch_keys()
    _create_patch_pairs()


def _create_images():
    op.create_table(
        'images',
        sa.Column('id', sa.String(128), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('data_size', sa.BigInteger, nullable=False),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.Column('disk_format', sa.String(16), nullable=False),
        sa.Column('file_size', sa.BigInteger, nullable=False),
        sa.Column('os_hash_algo', sa.String(64)),
        sa.Column('os_hash_value', sa.String(128)),
        sa.Column('owner', sa.String(255)),
        sa.Column('visibility', sa.String(16), nullable=False),
        sa.Column('status', sa.String(16), nullable=False),
        sa.Column('form_id', sa.String(64)),
        sa.Column('form_size', sa.BigInteger, nullable=False),
        sa.Column('family', sa.String(128)),
        sa.Column('record', sa.Text),
        sa.Column('compressed_size', sa.BigInteger),
        sa.Index('ix_images_content_id', 'content_id'),
        sa.Index('ix_images_family', 'family'),
        **columns.OPTIONS)


def _create_image_members():
    op.create_table(
        'image_members',
        sa.Column('image_id', sa.String(128),
                  sa.ForeignKey('images.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('member', sa.String(255), primary_key=True),
        sa.Index('ix_image_members_member', 'member'),
        **columns.OPTIONS)


def _create_patches():
    op.create_table(
        'patches',
        sa.Column('id', sa.String(64), primary_key=True),
        sa.Column('base', sa.String(64), nullable=False),
        sa.Column('target', sa.String(64), nullable=False),
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('create_seconds', sa.Double, nullable=False),
        sa.Column('apply_seconds', sa.Double, nullable=False),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.UniqueConstraint('base', 'target', name='uniq_patches_pair'),
        sa.Index('ix_patches_target', 'target'),
        **columns.OPTIONS)


def _create_sketches():
    op.create_table(
        'sketches',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('data_size', sa.BigInteger, nullable=False),
        sa.Column('requests', sa.BigInteger, nullable=False),
        sa.Column('retry_at', columns.time()),
        sa.UniqueConstraint('content_id', name='uniq_sketches_content_id'),
        sa.Index('ix_sketches_state', 'state'),
        **columns.OPTIONS)


def _create_sketch_keys():
    op.create_table(
        'sketch_keys',
        sa.Column('tree', sa.SmallInteger, primary_key=True,
                  autoincrement=False),
        sa.Column('label', sa.String(36), primary_key=True),
        sa.Column('sketch_id', sa.Integer,
                  sa.ForeignKey('sketches.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Index('ix_sketch_keys_sketch_id', 'sketch_id'),
        **columns.OPTIONS)


def _create_patch_pairs():
    op.create_table(
        'patch_pairs',
        sa.Column('base', sa.String(64), primary_key=True),
        sa.Column('target', sa.String(64), primary_key=True),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('likeness', sa.Integer, nullable=False),
        sa.Column('size', sa.BigInteger),
        sa.Column('place', sa.Integer),
        sa.Column('saving', sa.Double, nullable=False),
        sa.Column('host', sa.String(255)),
        sa.Column('free_at', columns.time()),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('terms', sa.String(64)),
        sa.Column('reason', sa.Text),
        sa.Index('ix_patch_pairs_host_terms', 'host', 'terms'),
        sa.Index('ix_patch_pairs_state_saving', 'state', 'saving'),
        sa.Index('ix_patch_pairs_target', 'target'),
        **columns.OPTIONS)
