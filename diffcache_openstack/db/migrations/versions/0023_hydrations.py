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
"""Hydrations of servers' images."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0023'
down_revision = '0022'


def upgrade():
    """Create the table; hosts fill it with their reports."""
    op.create_table(
        'hydrations',
        sa.Column('server_id', sa.String(128), primary_key=True),
        sa.Column('host_id', sa.Integer, sa.ForeignKey(
            'hosts.id', ondelete='CASCADE'), nullable=False),
        sa.Column('project_id', sa.String(255)),
        sa.Column('image_id', sa.String(128), nullable=False),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('document', sa.Text, nullable=False),
        sa.Column('updated_at', sa.DateTime().with_variant(
            mysql.DATETIME(fsp=6), 'mysql', 'mariadb'), nullable=False),
        sa.Index('ix_hydrations_host_id', 'host_id'),
        sa.Index('ix_hydrations_project_id', 'project_id'),
        mysql_engine='InnoDB', mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin')
