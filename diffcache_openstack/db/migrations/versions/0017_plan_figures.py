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
"""What a plan moves, and what it saves."""

from alembic import op
import sqlalchemy as sa

revision = '0017'
down_revision = '0016'


def upgrade():
    """Add the columns; earlier plans have no values in them."""
    for name in ('move_wan_bytes', 'move_lan_bytes', 'saved_wan_bytes'):
        op.add_column('plans', sa.Column(name, sa.BigInteger))
    for name in ('fill_seconds', 'saved_seconds'):
        op.add_column('plans', sa.Column(name, sa.Double))
