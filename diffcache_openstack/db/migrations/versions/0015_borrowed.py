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
"""Templates that hosts read from files of other services."""

from alembic import op
import sqlalchemy as sa

revision = '0015'
down_revision = '0014'


def upgrade():
    """Create the table."""
    op.create_table(
        'borrowed',
        sa.Column('host_id', sa.Integer,
                  sa.ForeignKey('hosts.id', ondelete='CASCADE'),
                  primary_key=True, autoincrement=False),
        sa.Column('object_id', sa.String(64), primary_key=True),
        sa.Column('bytes', sa.BigInteger, nullable=False),
        mysql_engine='InnoDB', mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin')
