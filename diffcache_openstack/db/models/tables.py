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
"""What all tables share.

Sizes are bytes, times UTC. Names are compared byte by byte on every engine;
MariaDB needs a collation for it.
"""

import datetime

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy import orm

from diffcache_openstack.common import exceptions

TABLE_OPTIONS = {
    'mysql_engine': 'InnoDB',
    'mysql_charset': 'utf8mb4',
    'mysql_collate': 'utf8mb4_bin',
}

HASH = sa.String(64)
KIND = sa.String(16)
HOST = sa.String(255)
SITE = sa.String(64)
IMAGE = sa.String(128)
PACKED = sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql', 'mariadb')


class UTCDateTime(sa.types.TypeDecorator):
    """An instant to the microsecond; databases are given UTC without zone."""

    impl = sa.DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect):
        """Ask MariaDB for microseconds, which it drops by default."""
        if dialect.name in ('mysql', 'mariadb'):
            return dialect.type_descriptor(mysql.DATETIME(fsp=6))
        return dialect.type_descriptor(sa.DateTime())

    def process_bind_param(self, value, dialect):
        """Convert an aware datetime to naive UTC."""
        if value is None:
            return None
        return value.astimezone(datetime.UTC).replace(tzinfo=None)

    def process_result_value(self, value, dialect):
        """Convert the stored datetime to an aware one."""
        return None if value is None else value.replace(tzinfo=datetime.UTC)


class Base(orm.DeclarativeBase):
    """All tables."""

    __table_args__ = TABLE_OPTIONS
    type_annotation_map = {datetime.datetime: UTCDateTime, float: sa.Double}


def _check_lengths(mapper, _connection, row):
    """Refuse texts that do not fit, before the database does.

    MariaDB's error would be one of the database, and SQLite has none.

    :raises InvalidInput: a text is longer than its column
    """
    for name, column in mapper.columns.items():
        limit = getattr(column.type, 'length', None)
        value = getattr(row, name)
        if limit and isinstance(value, str) and len(value) > limit:
            raise exceptions.InvalidInput(
                f'The {name} of one of the {mapper.local_table.name} has'
                f' {len(value)} characters, at most {limit} are possible:'
                f' "{value[:40]}..."; choose a shorter one.')


for _event in ('before_insert', 'before_update'):
    sa.event.listen(Base, _event, _check_lengths, propagate=True)
