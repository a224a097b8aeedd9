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
"""Versions of servers, work on them, and when they are saved."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0004'
down_revision = '0003'

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _datetime():
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql',
                                      'mariadb')


def upgrade():
    """Create the tables."""
    _create_versions()
    _create_tasks()
    _create_policies()


def _create_versions():
    op.create_table(
        'versions',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('description', sa.Text, nullable=False),
        sa.Column('server_id', sa.String(64), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('user_id', sa.String(255)),
        sa.Column('request_id', sa.String(64)),
        sa.Column('parent_id', sa.String(36)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('trigger', sa.String(16), nullable=False),
        sa.Column('protected', sa.Boolean, nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('alpha', sa.String(16), nullable=False),
        sa.Column('host', sa.String(255)),
        sa.Column('base_image', sa.String(128)),
        sa.Column('image_id', sa.String(128)),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in (
            'size', 'bytes_changed', 'bytes_read', 'bytes_stored')),
        sa.Column('seconds', sa.Double),
        sa.Column('pause_ms', sa.Double),
        sa.Column('quiesced', sa.Boolean, nullable=False),
        sa.Column('disks', sa.Text, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('created_at', _datetime(), nullable=False),
        sa.Column('updated_at', _datetime(), nullable=False),
        sa.Index('ix_versions_server_id', 'server_id'),
        sa.Index('ix_versions_project_id', 'project_id'),
        **_OPTIONS)


def _create_tasks():
    op.create_table(
        'version_tasks',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('server_id', sa.String(64)),
        sa.Column('version_id', sa.String(36)),
        sa.Column('host', sa.String(255)),
        sa.Column('task', sa.Text, nullable=False),
        sa.Column('done', sa.BigInteger, nullable=False),
        sa.Column('total', sa.BigInteger, nullable=False),
        sa.Column('result', sa.Text, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('created_at', _datetime(), nullable=False),
        sa.Column('updated_at', _datetime(), nullable=False),
        sa.Column('sent_at', _datetime()),
        sa.Column('seen_at', _datetime()),
        sa.Index('ix_version_tasks_state', 'state'),
        sa.Index('ix_version_tasks_version_id', 'version_id'),
        **_OPTIONS)


def _create_policies():
    op.create_table(
        'version_policies',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('server_id', sa.String(64), nullable=False),
        sa.Column('every', sa.Integer),
        *(sa.Column(name, sa.Integer, nullable=False) for name in (
            'keep_last', 'keep_hourly', 'keep_daily', 'keep_weekly',
            'keep_monthly')),
        *(sa.Column(name, sa.Boolean, nullable=False) for name in (
            'on_shutdown', 'on_delete', 'required')),
        sa.Column('alpha', sa.String(16), nullable=False),
        sa.Column('created_at', _datetime(), nullable=False),
        sa.Column('updated_at', _datetime(), nullable=False),
        sa.UniqueConstraint('project_id', 'server_id',
                            name='uniq_version_policies_subject'),
        **_OPTIONS)
