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
"""Messages that were accepted, and keys that are refused."""

from alembic import op
import sqlalchemy as sa

from diffcache_openstack.db.migrations.initial import columns


def create():
    """Create the tables, each after those that it refers to."""
    _create_messages()
    _create_revoked_keys()


def _create_messages():
    op.create_table(
        'messages',
        sa.Column('nonce', sa.String(32), primary_key=True),
        sa.Column('accepted_at', columns.time(), nullable=False),
        sa.Index('ix_messages_accepted_at', 'accepted_at'),
        **columns.OPTIONS)


def _create_revoked_keys():
    op.create_table(
        'revoked_keys',
        sa.Column('host', sa.String(255), primary_key=True),
        sa.Column('revoked_at', columns.time(), nullable=False),
        sa.Column('number', sa.BigInteger, nullable=False),
        sa.UniqueConstraint('number', name='uq_revoked_keys_number'),
        **columns.OPTIONS)
