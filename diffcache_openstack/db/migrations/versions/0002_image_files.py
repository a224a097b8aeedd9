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
"""What is known of the file of each image, and who may use it."""

from alembic import op
import sqlalchemy as sa

revision = '0002'
down_revision = '0001'

# What images have that were registered before; all of them were raw.
_BEFORE = {
    'disk_format': 'raw',
    'file_size': sa.text('size'),
    'visibility': 'public',
    'status': 'active',
    'form_size': 0,
}


def upgrade():
    """Add the columns, fill them, then forbid that they are empty."""
    columns = [
        sa.Column('disk_format', sa.String(16)),
        sa.Column('file_size', sa.BigInteger),
        sa.Column('os_hash_algo', sa.String(64)),
        sa.Column('os_hash_value', sa.String(128)),
        sa.Column('owner', sa.String(255)),
        sa.Column('visibility', sa.String(16)),
        sa.Column('status', sa.String(16)),
        sa.Column('form_id', sa.String(64)),
        sa.Column('form_size', sa.BigInteger),
        sa.Column('family', sa.String(128)),
    ]
    with op.batch_alter_table('templates') as table:
        for column in columns:
            table.add_column(column)
    filled = sa.table('templates', *(sa.column(name) for name in _BEFORE))
    op.execute(sa.update(filled).values(_BEFORE))
    with op.batch_alter_table('templates') as table:
        for column in columns:
            if column.name in _BEFORE:
                table.alter_column(column.name, existing_type=column.type,
                                   nullable=False)
