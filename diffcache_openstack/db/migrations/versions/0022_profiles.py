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
"""What instances read of images, as hosts report it."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0022'
down_revision = '0021'

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _datetime(name):
    return sa.Column(name, sa.DateTime().with_variant(
        mysql.DATETIME(fsp=6), 'mysql', 'mariadb'), nullable=False)


def _packed(name):
    return sa.Column(name, sa.LargeBinary().with_variant(
        mysql.MEDIUMBLOB(), 'mysql', 'mariadb'), nullable=False)


def upgrade():
    """Create the tables; agents fill them while servers boot lazily."""
    op.create_table(
        'profiles',
        sa.Column('id', sa.String(36), primary_key=True),
        sa.Column('image_id', sa.String(128), sa.ForeignKey(
            'templates.id', ondelete='CASCADE'), nullable=False),
        sa.Column('project_id', sa.String(128), nullable=False),
        sa.Column('label', sa.String(128), nullable=False),
        sa.Column('generation', sa.BigInteger, nullable=False),
        sa.Column('instances', sa.BigInteger, nullable=False),
        sa.Column('chunks', sa.Integer, nullable=False),
        _packed('rows'), _datetime('created_at'), _datetime('updated_at'),
        sa.UniqueConstraint('image_id', 'project_id', 'label',
                            name='uniq_profiles_subject'),
        **_OPTIONS)
    op.create_table(
        'profile_contributions',
        sa.Column('profile_id', sa.String(36), sa.ForeignKey(
            'profiles.id', ondelete='CASCADE'), primary_key=True),
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('run', sa.BigInteger, nullable=False),
        sa.Column('number', sa.BigInteger, nullable=False),
        _packed('past'), _packed('rows'),
        **_OPTIONS)
