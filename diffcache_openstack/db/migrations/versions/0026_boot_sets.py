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
"""Boot sets: chunks that boots read, on hosts without the image."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0026'
down_revision = '0025'

_TABLE = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4',
          'mysql_collate': 'utf8mb4_bin'}


def upgrade():
    """Create the tables; plans and the reports of hosts fill them."""
    instant = sa.DateTime().with_variant(
        mysql.DATETIME(fsp=6), 'mysql', 'mariadb')
    op.create_table(
        'boot_set_hosts',
        sa.Column('host_id', sa.Integer, sa.ForeignKey(
            'hosts.id', ondelete='CASCADE'), primary_key=True,
            autoincrement=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('reported_at', instant, nullable=False), **_TABLE)
    op.create_table(
        'boot_sets',
        sa.Column('host_id', sa.Integer, sa.ForeignKey(
            'hosts.id', ondelete='CASCADE'), primary_key=True,
            autoincrement=False),
        sa.Column('content_id', sa.String(64), primary_key=True),
        sa.Column('image_id', sa.String(128), nullable=False),
        sa.Column('wanted', sa.Boolean, nullable=False),
        sa.Column('pinned', sa.Boolean, nullable=False),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Column('rows', sa.LargeBinary().with_variant(
            mysql.MEDIUMBLOB(), 'mysql', 'mariadb'), nullable=False),
        sa.Column('requests', sa.Double, nullable=False),
        sa.Column('wait_seconds', sa.Double, nullable=False),
        sa.Column('from_peer', sa.Boolean, nullable=False),
        sa.Column('saved_seconds', sa.Double, nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('held_bytes', sa.BigInteger, nullable=False),
        sa.Column('message', sa.Text),
        sa.Column('updated_at', instant, nullable=False),
        sa.Index('ix_boot_sets_content_id', 'content_id'), **_TABLE)
    op.add_column('precache_jobs', sa.Column(
        'boot_set', sa.Boolean, nullable=False, server_default=sa.false()))
