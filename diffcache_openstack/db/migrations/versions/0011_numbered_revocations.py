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
"""Numbers of revocations, by which agents tell a new list from an old one."""

from alembic import op
import sqlalchemy as sa

revision = '0011'
down_revision = '0010'


def upgrade():
    """Add the numbers, in the order of the revocations."""
    with op.batch_alter_table('revoked_keys') as table:
        table.add_column(sa.Column('number', sa.BigInteger))
    rows = sa.table('revoked_keys', sa.column('host'),
                    sa.column('revoked_at'), sa.column('number'))
    connection = op.get_bind()
    hosts = connection.execute(sa.select(rows.c.host).order_by(
        rows.c.revoked_at, rows.c.host)).scalars().all()
    for number, host in enumerate(hosts, 1):
        connection.execute(sa.update(rows).where(rows.c.host == host)
                           .values(number=number))
    with op.batch_alter_table('revoked_keys') as table:
        table.alter_column('number', existing_type=sa.BigInteger,
                           nullable=False)
        table.create_unique_constraint('uq_revoked_keys_number', ['number'])
