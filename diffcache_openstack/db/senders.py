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
"""Senders of messages: revoked keys, and messages that were accepted."""

import datetime

from oslo_db import exception as db_exception
import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import revocations
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.db import models


# One statement, since each message that changes something is admitted.
_MESSAGES = models.Message.__table__
_ADMIT = sa.insert(_MESSAGES).from_select(
    ['nonce', 'accepted_at'],
    sa.select(sa.bindparam('number', type_=_MESSAGES.c.nonce.type),
              sa.bindparam('now', type_=_MESSAGES.c.accepted_at.type))
    .where(~sa.exists().where(
        models.RevokedKey.host == sa.bindparam('signer'),
        models.RevokedKey.revoked_at >= sa.bindparam('issued'))))


def admit(session: orm.Session, sender: signatures.Sender,
          when: datetime.datetime) -> None:
    """Accept a message that changes state, once.

    :raises Forbidden: it was accepted before, or its signer's key is revoked
    """
    signer = sender.signer
    try:
        admitted = session.execute(_ADMIT, {
            'number': sender.nonce, 'now': when, 'signer': signer.name,
            'issued': signer.issued_at}).rowcount
    except db_exception.DBDuplicateEntry as error:
        raise signatures.repeated(sender) from error
    if not admitted:
        check(session, sender)


def check(session: orm.Session, sender: signatures.Sender) -> None:
    """Check that the key of a message's signer is not revoked.

    :raises Forbidden: it is
    """
    check_key(session, sender.signer)


def check_key(session: orm.Session, signer: host_keys.Signer) -> None:
    """Check that the key of a host is not revoked.

    :raises Forbidden: it is
    """
    row = session.get(models.RevokedKey, signer.name)
    if row is not None and signer.issued <= row.revoked_at.timestamp():
        raise exceptions.Forbidden(
            f'The key of {signer} was revoked at'
            f' {row.revoked_at.isoformat(timespec="seconds")}; if the host is'
            f' trusted again, issue a new one with "diffcache-manage host-key'
            f' create".')


def revoke(session: orm.Session, host: str, when: datetime.datetime) -> None:
    """Accept no key of a host that was issued until an instant."""
    number = _number(session) + 1
    row = session.get(models.RevokedKey, host)
    if row is None:
        session.add(models.RevokedKey(host=host, revoked_at=when,
                                      number=number))
    else:
        row.revoked_at, row.number = when, number
    session.flush()


def _number(session: orm.Session) -> int:
    """Return how often keys were revoked."""
    return session.scalar(sa.select(sa.func.max(models.RevokedKey.number))
                          ) or 0


def newer_list(session: orm.Session, number: int
               ) -> revocations.RevokedKeys | None:
    """Return all revoked keys, or None if a host has that list.

    :param number: of the list that the host has
    """
    newest = _number(session)
    if newest == number:
        return None
    return revocations.RevokedKeys(newest, {
        host: when.timestamp() for host, when in revoked(session)})


def revoked(session: orm.Session) -> list[tuple[str, datetime.datetime]]:
    """List hosts with revoked keys, and when those were revoked."""
    return [(row.host, row.revoked_at) for row in session.scalars(
        sa.select(models.RevokedKey).order_by(models.RevokedKey.host))]


def forget(session: orm.Session, before: datetime.datetime) -> int:
    """Forget messages accepted before an instant; return how many."""
    return session.execute(
        sa.delete(models.Message).where(models.Message.accepted_at < before)
        .execution_options(synchronize_session=False)).rowcount
