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

import datetime

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.db.models import tables


class Message(tables.Base):
    """A message that was accepted, by the number that its signature has."""

    __tablename__ = 'messages'
    __table_args__ = (
        sa.Index('ix_messages_accepted_at', 'accepted_at'),
        tables.TABLE_OPTIONS,
    )

    nonce: orm.Mapped[str] = orm.mapped_column(sa.String(32),
                                               primary_key=True)
    accepted_at: orm.Mapped[datetime.datetime]


class RevokedKey(tables.Base):
    """A host whose keys are not accepted if they were issued until then.

    ``number`` is that of the revocation: agents tell by the greatest one
    whether their list is the newest.
    """

    __tablename__ = 'revoked_keys'
    __table_args__ = (
        sa.UniqueConstraint('number', name='uq_revoked_keys_number'),
        tables.TABLE_OPTIONS,
    )

    host: orm.Mapped[str] = orm.mapped_column(tables.HOST, primary_key=True)
    revoked_at: orm.Mapped[datetime.datetime]
    number: orm.Mapped[int] = orm.mapped_column(sa.BigInteger)
