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
"""Versions of servers, and the tasks on them."""

from alembic import op
import sqlalchemy as sa

from diffcache_openstack.db.migrations.initial import columns


def create():
    """Create the tables, each after those that it refers to."""
    _create_versions()
    _create_version_tasks()
    _create_version_stores()
    _create_version_heads()
    _create_version_policies()


def _create_versions():
    op.create_table(
        'versions',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('description', sa.Text, nullable=False),
        sa.Column('server_id', sa.String(64)),
        sa.Column('volume_id', sa.String(64)),
        sa.Column('volume_metadata', sa.Text, nullable=False),
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
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('bytes_changed', sa.BigInteger, nullable=False),
        sa.Column('bytes_read', sa.BigInteger, nullable=False),
        sa.Column('bytes_stored', sa.BigInteger, nullable=False),
        sa.Column('seconds', sa.Double),
        sa.Column('pause_ms', sa.Double),
        sa.Column('frozen_ms', sa.Double),
        sa.Column('quiesced', sa.Boolean, nullable=False),
        sa.Column('disks', sa.Text, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('error_code', sa.String(32)),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Index('ix_versions_parent_id', 'parent_id'),
        sa.Index('ix_versions_project_id', 'project_id'),
        sa.Index('ix_versions_state_updated_at', 'state', 'updated_at'),
        sa.Index('ix_versions_server_id', 'server_id'),
        sa.Index('ix_versions_volume_id', 'volume_id'),
        **columns.OPTIONS)


def _create_version_tasks():
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
        sa.Column('error_code', sa.String(32)),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Column('sent_at', columns.time()),
        sa.Column('seen_at', columns.time()),
        sa.Column('leased_until', columns.time()),
        sa.Column('cancelling', sa.Boolean, nullable=False),
        sa.Index('ix_version_tasks_server_id', 'server_id'),
        sa.Index('ix_version_tasks_project_id', 'project_id', 'created_at'),
        sa.Index('ix_version_tasks_state_updated_at', 'state', 'updated_at'),
        sa.Index('ix_version_tasks_version_id', 'version_id'),
        **columns.OPTIONS)


def _create_version_stores():
    op.create_table(
        'version_stores',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('bytes', sa.BigInteger),
        sa.Column('unpruned_since', columns.time()),
        sa.Column('deleted_at', columns.time()),
        sa.Column('prune_tried_at', columns.time()),
        sa.Column('verified_at', columns.time()),
        sa.Column('verify_tried_at', columns.time()),
        sa.Column('rekeying', sa.Boolean, nullable=False),
        sa.Column('created_at', columns.time(), nullable=False),
        **columns.OPTIONS)


def _create_version_heads():
    op.create_table(
        'version_heads',
        sa.Column('project_id', sa.String(255), primary_key=True),
        sa.Column('place', sa.String(64), primary_key=True),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.Column('digest', sa.String(64), nullable=False),
        sa.Column('host', sa.String(255), nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        **columns.OPTIONS)


def _create_version_policies():
    op.create_table(
        'version_policies',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('server_id', sa.String(64), nullable=False),
        sa.Column('every', sa.Integer),
        sa.Column('keep_last', sa.Integer, nullable=False),
        sa.Column('keep_hourly', sa.Integer, nullable=False),
        sa.Column('keep_daily', sa.Integer, nullable=False),
        sa.Column('keep_weekly', sa.Integer, nullable=False),
        sa.Column('keep_monthly', sa.Integer, nullable=False),
        sa.Column('on_shutdown', sa.Boolean, nullable=False),
        sa.Column('on_delete', sa.Boolean, nullable=False),
        sa.Column('required', sa.Boolean, nullable=False),
        sa.Column('volumes', sa.Boolean, nullable=False),
        sa.Column('alpha', sa.String(16), nullable=False),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.UniqueConstraint('project_id', 'server_id',
                            name='uniq_version_policies_subject'),
        **columns.OPTIONS)
