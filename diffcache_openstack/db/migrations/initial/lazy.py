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
"""Images that arrive while servers run."""

from alembic import op
import sqlalchemy as sa

from diffcache_openstack.db.migrations.initial import columns


def create():
    """Create the tables, each after those that it refers to."""
    _create_hydrations()
    _create_profiles()
    _create_boot_set_hosts()
    _create_boot_sets()
    _create_profile_contributions()


def _create_hydrations():
    op.create_table(
        'hydrations',
        sa.Column('server_id', sa.String(128), primary_key=True),
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('project_id', sa.String(255)),
        sa.Column('image_id', sa.String(128), nullable=False),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('document', sa.Text, nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Index('ix_hydrations_host_id', 'host_id'),
        sa.Index('ix_hydrations_project_id', 'project_id'),
        **columns.OPTIONS)


def _create_profiles():
    op.create_table(
        'profiles',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('image_id', sa.String(128),
                  sa.ForeignKey('images.id', ondelete='CASCADE'),
                  nullable=False),
        sa.Column('project_id', sa.String(128), nullable=False),
        sa.Column('label', sa.String(128), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('instances', sa.BigInteger, nullable=False),
        sa.Column('chunks', sa.Integer, nullable=False),
        sa.Column('rows', columns.packed(), nullable=False),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Column('carried_from', sa.String(128)),
        sa.Column('carried_instances', sa.BigInteger),
        sa.Column('carried_chunks', sa.Integer),
        sa.Column('carried_rows', columns.packed()),
        sa.UniqueConstraint('image_id', 'project_id', 'label',
                            name='uniq_profiles_subject'),
        **columns.OPTIONS)


def _create_boot_set_hosts():
    op.create_table(
        'boot_set_hosts',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('reported_at', columns.time(), nullable=False),
        **columns.OPTIONS)


def _create_boot_sets():
    op.create_table(
        'boot_sets',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('content_id', sa.String(64), primary_key=True),
        sa.Column('image_id', sa.String(128), nullable=False),
        sa.Column('wanted', sa.Boolean, nullable=False),
        sa.Column('pinned', sa.Boolean, nullable=False),
        sa.Column('rows', columns.packed(), nullable=False),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Column('requests', sa.Double, nullable=False),
        sa.Column('wait_seconds', sa.Double, nullable=False),
        sa.Column('from_peer', sa.Boolean, nullable=False),
        sa.Column('saved_seconds', sa.Double, nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('held_bytes', sa.BigInteger, nullable=False),
        sa.Column('message', sa.Text),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Index('ix_boot_sets_content_id', 'content_id'),
        **columns.OPTIONS)


def _create_profile_contributions():
    op.create_table(
        'profile_contributions',
        sa.Column('profile_id', sa.String(36),
                  sa.ForeignKey('profiles.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('run', sa.BigInteger, nullable=False),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.Column('aged_at', columns.time()),
        sa.Column('past', columns.packed(), nullable=False),
        sa.Column('rows', columns.packed(), nullable=False),
        **columns.OPTIONS)
