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
"""The tables of the first release."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0001'
down_revision = None

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _datetime():
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql',
                                      'mariadb')


def upgrade():
    """Create every table."""
    _create_sites_and_hosts()
    _create_catalogue()
    _create_history()
    _create_plans()


def _create_sites_and_hosts():
    op.create_table(
        'sites',
        sa.Column('name', sa.String(64), primary_key=True),
        sa.Column('map_generation', sa.BigInteger, nullable=False),
        sa.Column('plan_generation', sa.BigInteger, nullable=False),
        sa.Column('planned_at', _datetime()),
        **_OPTIONS)
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
        sa.Column('seen_at', _datetime(), nullable=False),
        sa.UniqueConstraint('name', name='uniq_hosts_name'),
        sa.Index('ix_hosts_site', 'site'),
        **_OPTIONS)
    op.create_table(
        'holdings',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        **_OPTIONS)


def _create_catalogue():
    op.create_table(
        'templates',
        sa.Column('id', sa.String(128), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('content_id', sa.String(64), nullable=False),
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('data_size', sa.BigInteger, nullable=False),
        sa.Column('created_at', _datetime(), nullable=False),
        sa.Index('ix_templates_content_id', 'content_id'),
        **_OPTIONS)
    op.create_table(
        'patches',
        sa.Column('id', sa.String(64), primary_key=True),
        sa.Column('base', sa.String(64), nullable=False),
        sa.Column('target', sa.String(64), nullable=False),
        sa.Column('size', sa.BigInteger, nullable=False),
        sa.Column('create_seconds', sa.Double, nullable=False),
        sa.Column('apply_seconds', sa.Double, nullable=False),
        sa.Column('created_at', _datetime(), nullable=False),
        sa.UniqueConstraint('base', 'target', name='uniq_patches_pair'),
        sa.Index('ix_patches_target', 'target'),
        **_OPTIONS)


def _create_history():
    op.create_table(
        'requests',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('template_id', sa.String(128), nullable=False),
        sa.Column('content_id', sa.String(64)),
        sa.Column('host', sa.String(255), nullable=False),
        sa.Column('site', sa.String(64), nullable=False),
        sa.Column('mode', sa.String(32), nullable=False),
        sa.Column('way', sa.String(32), nullable=False),
        sa.Column('detail', sa.Text, nullable=False),
        sa.Column('seconds', sa.Double, nullable=False),
        sa.Column('predicted_seconds', sa.Double),
        sa.Column('wan_bytes', sa.BigInteger, nullable=False),
        sa.Column('lan_bytes', sa.BigInteger, nullable=False),
        sa.Column('fallbacks', sa.Integer, nullable=False),
        sa.Column('patch_id', sa.String(64)),
        sa.Column('apply_seconds', sa.Double, nullable=False),
        sa.Column('started_at', _datetime(), nullable=False),
        sa.Column('error', sa.Text),
        sa.Index('ix_requests_site_started_at', 'site', 'started_at'),
        sa.Index('ix_requests_started_at', 'started_at'),
        **_OPTIONS)


def _create_plans():
    op.create_table(
        'plans',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('site', sa.String(64), sa.ForeignKey('sites.name'),
                  nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('solver', sa.String(64), nullable=False),
        sa.Column('cost_s', sa.Double, nullable=False),
        sa.Column('lower_bound_s', sa.Double, nullable=False),
        sa.Column('proved_optimal', sa.Boolean, nullable=False),
        sa.Column('solver_seconds', sa.Double, nullable=False),
        sa.Column('created_at', _datetime(), nullable=False),
        sa.UniqueConstraint('site', 'generation',
                            name='uniq_plans_site_generation'),
        **_OPTIONS)
    op.create_table(
        'plan_hosts',
        sa.Column('plan_id', sa.Integer,
                  sa.ForeignKey('plans.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        **_OPTIONS)
    op.create_table(
        'plan_items',
        sa.Column('plan_id', sa.Integer,
                  sa.ForeignKey('plans.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('kind', sa.String(16), primary_key=True),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        sa.Column('priority', sa.Integer, nullable=False),
        sa.Column('saved_seconds', sa.Double, nullable=False),
        **_OPTIONS)
    op.create_table(
        'leases',
        sa.Column('name', sa.String(128), primary_key=True),
        sa.Column('owner', sa.String(255), nullable=False),
        sa.Column('expires_at', _datetime(), nullable=False),
        **_OPTIONS)
