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
"""SSD caches of hosts, and the volumes in them."""

from alembic import op
import sqlalchemy as sa

from diffcache_openstack.db.migrations.initial import columns


def create():
    """Create the tables, each after those that it refers to."""
    _create_ssd_caches()
    _create_volume_caches()


def _create_ssd_caches():
    op.create_table(
        'ssd_caches',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('capacity', sa.BigInteger, nullable=False),
        sa.Column('policy', sa.String(255), nullable=False),
        sa.Column('epoch', sa.BigInteger, nullable=False),
        sa.Column('decisions', sa.Text, nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        **columns.OPTIONS)


def _create_volume_caches():
    op.create_table(
        'volume_caches',
        sa.Column('id', sa.String(128), primary_key=True),
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('server_id', sa.String(64)),
        sa.Column('project_id', sa.String(255)),
        sa.Column('mode', sa.String(32), nullable=False),
        sa.Column('document', sa.Text, nullable=False),
        sa.Column('curve', sa.Text),
        sa.Column('working_set', sa.BigInteger, nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Index('ix_volume_caches_host_id', 'host_id'),
        sa.Index('ix_volume_caches_project_id', 'project_id'),
        **columns.OPTIONS)
