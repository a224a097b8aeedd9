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
"""Sketches of images, and the pairs of them that patches are considered of."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0012'
down_revision = '0011'

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _datetime():
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql',
                                      'mariadb')


def upgrade():
    """Create the tables, with the images and patches that there are."""
    op.create_table(
        'sketches',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('data_size', sa.BigInteger, nullable=False),
        sa.Column('requests', sa.BigInteger, nullable=False),
        sa.Column('retry_at', _datetime()),
        sa.UniqueConstraint('content_id', name='uniq_sketches_content_id'),
        sa.Index('ix_sketches_state', 'state'),
        **_OPTIONS)
    op.create_table(
        'sketch_keys',
        sa.Column('tree', sa.SmallInteger, primary_key=True,
                  autoincrement=False),
        sa.Column('label', sa.String(36), primary_key=True),
        sa.Column('sketch_id', sa.Integer,
                  sa.ForeignKey('sketches.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Index('ix_sketch_keys_sketch_id', 'sketch_id'),
        **_OPTIONS)
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
        sa.Column('free_at', _datetime()),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('terms', sa.String(64)),
        sa.Column('reason', sa.Text),
        sa.Index('ix_patch_pairs_host_terms', 'host', 'terms'),
        sa.Index('ix_patch_pairs_target', 'target'),
        sa.Index('ix_patch_pairs_state_saving', 'state', 'saving'),
        **_OPTIONS)
    op.execute(
        "INSERT INTO sketches (content_id, state, data_size, requests)"
        " SELECT content_id, 'new', MAX(data_size), 0 FROM templates"
        " WHERE status = 'active' GROUP BY content_id")
    op.execute(
        "INSERT INTO patch_pairs (base, target, state, likeness, size,"
        " saving, attempts) SELECT base, target, 'made', 0, size, 0, 0"
        " FROM patches WHERE base IN (SELECT content_id FROM sketches)"
        " AND target IN (SELECT content_id FROM sketches)")
