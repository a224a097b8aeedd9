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
"""Sites, their hosts, and what hosts report."""

from alembic import op
import sqlalchemy as sa

from diffcache_openstack.db.migrations.initial import columns


def create():
    """Create the tables, each after those that it refers to."""
    _create_sites()
    _create_map_changes()
    _create_hosts()
    _create_holdings()
    _create_borrowed()
    _create_fills()
    _create_pending_images()
    _create_host_networks()
    _create_repository_standings()


def _create_sites():
    op.create_table(
        'sites',
        sa.Column('name', sa.String(64), primary_key=True),
        sa.Column('map_generation', sa.BigInteger, nullable=False),
        sa.Column('plan_generation', sa.BigInteger, nullable=False),
        sa.Column('planned_at', columns.time()),
        sa.Column('map_floor', sa.BigInteger, nullable=False),
        **columns.OPTIONS)


def _create_map_changes():
    op.create_table(
        'map_changes',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('site', sa.String(64), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('what', sa.String(16), nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('kind', sa.String(16)),
        sa.Column('object_id', sa.String(64)),
        sa.Index('ix_map_changes_site_generation', 'site', 'generation'),
        **columns.OPTIONS)


def _create_hosts():
    op.create_table(
        'hosts',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('site', sa.String(64), sa.ForeignKey('sites.name'),
                  nullable=False),
        sa.Column('role', sa.String(16), nullable=False),
        sa.Column('url', sa.String(255)),
        sa.Column('capacity', sa.BigInteger, nullable=False),
        sa.Column('alive', sa.Boolean, nullable=False),
        sa.Column('plan_generation', sa.BigInteger, nullable=False),
        sa.Column('seen_at', columns.time(), nullable=False),
        sa.Column('held_objects', sa.BigInteger, nullable=False),
        sa.Column('held_bytes', sa.BigInteger, nullable=False),
        sa.UniqueConstraint('name', name='uniq_hosts_name'),
        sa.Index('ix_hosts_site', 'site'),
        **columns.OPTIONS)


def _create_holdings():
    op.create_table(
        'holdings',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Index('ix_holdings_object_id', 'object_id'),
        **columns.OPTIONS)


def _create_borrowed():
    op.create_table(
        'borrowed',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        **columns.OPTIONS)


def _create_fills():
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
        sa.Column('retry_at', columns.time()),
        **columns.OPTIONS)


def _create_pending_images():
    op.create_table(
        'pending_images',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('image_id', sa.String(128), primary_key=True),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('retry_at', columns.time()),
        **columns.OPTIONS)


def _create_host_networks():
    op.create_table(
        'host_networks',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('fill_rate', sa.BigInteger),
        sa.Column('fill_windows', sa.Text, nullable=False),
        sa.Column('peer_mbps', sa.Double),
        **columns.OPTIONS)


def _create_repository_standings():
    op.create_table(
        'repository_standings',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('name', sa.String(255), primary_key=True),
        sa.Column('answers', sa.Boolean, nullable=False),
        sa.Column('since', columns.time()),
        sa.Column('reason', sa.Text),
        sa.Column('mbps', sa.Double),
        sa.Column('transfers', sa.BigInteger, nullable=False),
        sa.Column('failures', sa.BigInteger, nullable=False),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Index('ix_repository_standings_name', 'name'),
        **columns.OPTIONS)
