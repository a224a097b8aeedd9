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
"""Who shared images are shared with, and how far hosts are with fills."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0005'
down_revision = '0004'

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _datetime():
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql',
                                      'mariadb')


def upgrade():
    """Create the tables, and add what hosts report of targets."""
    op.create_table(
        'template_members',
        sa.Column('template_id', sa.String(128),
                  sa.ForeignKey('templates.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('member', sa.String(255), primary_key=True),
        sa.Index('ix_template_members_member', 'member'),
        **_OPTIONS)
    op.create_table(
        'fills',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('active', sa.Boolean, nullable=False),
        sa.Column('bytes_total', sa.BigInteger, nullable=False),
        sa.Column('bytes_done', sa.BigInteger, nullable=False),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('retry_at', _datetime()),
        **_OPTIONS)
    with op.batch_alter_table('precache_targets') as table:
        table.add_column(sa.Column('attempts', sa.Integer, nullable=False,
                                   server_default='0'))
        table.add_column(sa.Column('retry_at', _datetime()))
    # Only rows of before need a default.
    with op.batch_alter_table('precache_targets') as table:
        table.alter_column('attempts', existing_type=sa.Integer(),
                           existing_nullable=False, server_default=None)
