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
"""Plans that are only proposed, and precache jobs."""

import uuid

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0003'
down_revision = '0002'

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _datetime():
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql',
                                      'mariadb')


def upgrade():
    """Let plans be proposals; create the tables of precache jobs."""
    op.create_index('ix_holdings_object_id', 'holdings', ['object_id'])
    op.create_index('ix_templates_family', 'templates', ['family'])
    _extend_plans()
    _create_jobs()
    _create_targets()


def _extend_plans():
    with op.batch_alter_table('plans') as table:
        table.add_column(sa.Column('uuid', sa.String(36)))
        table.add_column(sa.Column('state', sa.String(16)))
        table.add_column(sa.Column('base_generation', sa.BigInteger))
        table.add_column(sa.Column('changes', sa.Text))
        table.add_column(sa.Column('error', sa.Text))
        table.alter_column('generation', existing_type=sa.BigInteger,
                           nullable=True)
    plans = sa.table('plans', sa.column('id'), sa.column('uuid'),
                     sa.column('state'), sa.column('base_generation'),
                     sa.column('changes'))
    connection = op.get_bind()
    for plan_id in connection.scalars(sa.select(plans.c.id)).all():
        connection.execute(
            sa.update(plans).where(plans.c.id == plan_id).values(
                uuid=str(uuid.uuid4()), state='applied', base_generation=0,
                changes='{}'))
    with op.batch_alter_table('plans') as table:
        for name, kind in (('uuid', sa.String(36)), ('state', sa.String(16)),
                           ('base_generation', sa.BigInteger),
                           ('changes', sa.Text)):
            table.alter_column(name, existing_type=kind, nullable=False)
        table.create_unique_constraint('uniq_plans_uuid', ['uuid'])


def _create_jobs():
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
        sa.Column('is_open', sa.Boolean, nullable=False),
        sa.Column('dirty', sa.Boolean, nullable=False),
        sa.Column('message', sa.Text),
        sa.Column('created_at', _datetime(), nullable=False),
        sa.Column('updated_at', _datetime(), nullable=False),
        sa.Column('expires_at', _datetime()),
        sa.Index('ix_precache_jobs_state', 'state'),
        **_OPTIONS)


def _create_targets():
    op.create_table(
        'precache_targets',
        sa.Column('job_id', sa.String(36),
                  sa.ForeignKey('precache_jobs.id', ondelete='CASCADE'),
                  primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('template_id', sa.String(128), primary_key=True),
        sa.Column('content_id', sa.String(64)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('way', sa.String(16)),
        sa.Column('bytes_total', sa.BigInteger, nullable=False),
        sa.Column('bytes_done', sa.BigInteger, nullable=False),
        sa.Column('message', sa.Text),
        sa.Column('updated_at', _datetime(), nullable=False),
        sa.Index('ix_precache_targets_host', 'host'),
        **_OPTIONS)
