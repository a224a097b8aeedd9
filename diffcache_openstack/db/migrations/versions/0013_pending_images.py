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
"""Images that repositories could not add yet."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0013'
down_revision = '0012'


def upgrade():
    """Create the table."""
    op.create_table(
        'pending_images',
        sa.Column('host_id', sa.Integer, sa.ForeignKey(
            'hosts.id', ondelete='CASCADE'), primary_key=True,
            autoincrement=False),
        sa.Column('image_id', sa.String(128), primary_key=True),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('error', sa.Text),
        sa.Column('retry_at', sa.DateTime().with_variant(
            mysql.DATETIME(fsp=6), 'mysql', 'mariadb')),
        mysql_engine='InnoDB', mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin')
