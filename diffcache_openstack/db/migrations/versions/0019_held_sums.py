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
"""Number and bytes of the objects of each host."""

from alembic import op
import sqlalchemy as sa

revision = '0019'
down_revision = '0018'


def upgrade():
    """Add the sums, and compute them for the hosts that there are."""
    for name in ('held_objects', 'held_bytes'):
        op.add_column('hosts', sa.Column(
            name, sa.BigInteger, nullable=False, server_default='0'))
    hosts = sa.table('hosts', *map(sa.column, (
        'id', 'held_objects', 'held_bytes')))
    held = sa.table('holdings', *map(sa.column, ('host_id', 'bytes')))

    def sum_of(value):
        return sa.select(value).where(held.c.host_id == hosts.c.id) \
            .scalar_subquery()

    op.execute(hosts.update().values(
        held_objects=sum_of(sa.func.count()),
        held_bytes=sum_of(sa.func.coalesce(sa.func.sum(held.c.bytes), 0))))
