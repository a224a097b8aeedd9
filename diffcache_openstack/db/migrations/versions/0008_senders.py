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
"""Messages that were accepted, revoked keys, and records of images."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0008'
down_revision = '0007'

_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}


def _datetime():
    return sa.DateTime().with_variant(mysql.DATETIME(fsp=6), 'mysql',
                                      'mariadb')


def upgrade():
    """Create the tables, and add the records."""
    op.create_table(
        'messages',
        sa.Column('nonce', sa.String(32), primary_key=True),
        sa.Column('accepted_at', _datetime(), nullable=False),
        sa.Index('ix_messages_accepted_at', 'accepted_at'),
        **_OPTIONS)
    op.create_table(
        'revoked_keys',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('revoked_at', _datetime(), nullable=False),
        **_OPTIONS)
    with op.batch_alter_table('templates') as table:
        table.add_column(sa.Column('record', sa.Text))
