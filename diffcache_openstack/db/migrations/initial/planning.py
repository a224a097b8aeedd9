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
"""Requests, plans and precache jobs."""

from alembic import op
import sqlalchemy as sa

from diffcache_openstack.db.migrations.initial import columns


def create():
    """Create the tables, each after those that it refers to."""
    _create_requests()
    _create_plans()
    _create_plan_hosts()
    _create_plan_items()
    _create_precache_jobs()
    _create_precache_targets()
    _create_leases()


def _create_requests():
    op.create_table(
        'requests',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('image_id', sa.String(128), nullable=False),
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
        sa.Column('started_at', columns.time(), nullable=False),
        sa.Column('error', sa.Text),
        sa.Index('ix_requests_host_image_id', 'host', 'image_id',
                 'started_at'),
        sa.Index('ix_requests_site_started_at', 'site', 'started_at'),
        sa.Index('ix_requests_started_at', 'started_at'),
        sa.Index('ix_requests_way_started_at', 'way', 'started_at'),
        **columns.OPTIONS)


def _create_plans():
    op.create_table(
        'plans',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('site', sa.String(64), sa.ForeignKey('sites.name'),
                  nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('generation', sa.BigInteger),
        sa.Column('base_generation', sa.BigInteger, nullable=False),
        sa.Column('changes', sa.Text, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('solver', sa.String(64), nullable=False),
        sa.Column('cost_s', sa.Double, nullable=False),
        sa.Column('lower_bound_s', sa.Double, nullable=False),
        sa.Column('proved_optimal', sa.Boolean, nullable=False),
        sa.Column('solver_seconds', sa.Double, nullable=False),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.Column('move_wan_bytes', sa.BigInteger),
        sa.Column('move_lan_bytes', sa.BigInteger),
        sa.Column('fill_seconds', sa.Double),
        sa.Column('saved_seconds', sa.Double),
        sa.Column('saved_wan_bytes', sa.BigInteger),
        sa.Column('objective', sa.String(16)),
        sa.Column('cost_wan_bytes', sa.BigInteger),
        sa.UniqueConstraint('site', 'generation',
                            name='uniq_plans_site_generation'),
        sa.UniqueConstraint('uuid', name='uniq_plans_uuid'),
        **columns.OPTIONS)


def _create_plan_hosts():
    op.create_table(
        'plan_hosts',
        sa.Column('plan_id', sa.Integer,
                  sa.ForeignKey('plans.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        **columns.OPTIONS)


def _create_plan_items():
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
        **columns.OPTIONS)


def _create_precache_jobs():
    op.create_table(
        'precache_jobs',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('project_id', sa.String(255)),
        sa.Column('user_id', sa.String(255)),
        sa.Column('request_id', sa.String(64)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('images', sa.Text, nullable=False),
        sa.Column('families', sa.Text, nullable=False),
        sa.Column('hosts', sa.Text, nullable=False),
        sa.Column('aggregates', sa.Text, nullable=False),
        sa.Column('availability_zones', sa.Text, nullable=False),
        sa.Column('priority', sa.Integer, nullable=False),
        sa.Column('rate', sa.BigInteger),
        sa.Column('window', sa.String(255)),
        sa.Column('pinned', sa.Boolean, nullable=False),
        sa.Column('boot_set', sa.Boolean, nullable=False),
        sa.Column('is_open', sa.Boolean, nullable=False),
        sa.Column('dirty', sa.Boolean, nullable=False),
        sa.Column('message', sa.Text),
        sa.Column('created_at', columns.time(), nullable=False),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Column('expires_at', columns.time()),
        sa.Index('ix_precache_jobs_state', 'state'),
        **columns.OPTIONS)


def _create_precache_targets():
    op.create_table(
        'precache_targets',
        sa.Column('job_id', sa.String(36),
                  sa.ForeignKey('precache_jobs.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('image_id', sa.String(128), primary_key=True),
        sa.Column('content_id', sa.String(64)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('way', sa.String(16)),
        sa.Column('bytes_total', sa.BigInteger, nullable=False),
        sa.Column('bytes_done', sa.BigInteger, nullable=False),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('retry_at', columns.time()),
        sa.Column('message', sa.Text),
        sa.Column('updated_at', columns.time(), nullable=False),
        sa.Index('ix_precache_targets_host', 'host'),
        **columns.OPTIONS)


def _create_leases():
    op.create_table(
        'leases',
        sa.Column('name', sa.String(128), primary_key=True),
        sa.Column('owner', sa.String(255), nullable=False),
        sa.Column('expires_at', columns.time(), nullable=False),
        **columns.OPTIONS)
