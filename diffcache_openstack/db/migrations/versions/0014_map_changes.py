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
"""Changes of the maps of sites."""

from alembic import op
import sqlalchemy as sa

revision = '0014'
down_revision = '0013'


def upgrade():
    """Create the table; it is complete from the present generations on."""
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
        mysql_engine='InnoDB', mysql_charset='utf8mb4',
        mysql_collate='utf8mb4_bin')
    with op.batch_alter_table('sites') as table:
        table.add_column(sa.Column('map_floor', sa.BigInteger,
                                   nullable=False, server_default='0'))
    op.execute('UPDATE sites SET map_floor = map_generation')
