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
"""Profiles that were carried from similar images."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0025'
down_revision = '0024'


def upgrade():
    """Add the columns; repositories fill them."""
    for column in (
            sa.Column('carried_from', sa.String(128)),
            sa.Column('carried_instances', sa.BigInteger),
            sa.Column('carried_chunks', sa.Integer),
            sa.Column('carried_rows', sa.LargeBinary().with_variant(
                mysql.MEDIUMBLOB(), 'mysql', 'mariadb'))):
        op.add_column('profiles', column)
