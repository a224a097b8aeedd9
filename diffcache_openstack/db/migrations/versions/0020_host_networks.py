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
"""What hosts measure of their links, and when they fill their caches."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0020'
down_revision = '0019'

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _host_id():
    return sa.Column('host_id', sa.Integer, sa.ForeignKey(
        'hosts.id', ondelete='CASCADE'), primary_key=True,
        autoincrement=False)


def upgrade():
    """Create the tables; hosts fill them with their reports."""
    op.create_table(
        'host_networks', _host_id(),
        sa.Column('fill_rate', sa.BigInteger),
        sa.Column('fill_windows', sa.Text, nullable=False),
        sa.Column('peer_mbps', sa.Double),
        **_OPTIONS)
    op.create_table(
        'repository_standings', _host_id(),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('answers', sa.Boolean, nullable=False),
        sa.Column('since', sa.DateTime().with_variant(
            mysql.DATETIME(fsp=6), 'mysql', 'mariadb')),
        sa.Column('reason', sa.Text),
        sa.Column('mbps', sa.Double),
        *(sa.Column(name, sa.BigInteger, nullable=False)
          for name in ('transfers', 'failures', 'bytes')),
        sa.Index('ix_repository_standings_name', 'name'),
        **_OPTIONS)
