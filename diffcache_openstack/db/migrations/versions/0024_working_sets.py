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
"""Working sets of volumes in SSD caches."""

from alembic import op
import sqlalchemy as sa

revision = '0024'
down_revision = '0023'


def upgrade():
    """Add the column; hosts fill it with their next reports."""
    op.add_column('volume_caches', sa.Column(
        'working_set', sa.BigInteger, nullable=False, server_default='0'))
