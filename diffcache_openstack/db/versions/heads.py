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
"""Heads of stores of versions: which catalogue is the last."""

import datetime
import typing

import sqlalchemy as sa
from sqlalchemy import orm

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import models
from diffcache_openstack.objects import versions

# Of a disk of 16 TiB, in packs of 64 MiB.
_MOST_NUMBERS = 1 << 19
# Stores that a project may have had; agents name them.
_MOST_PLACES = 16


class ProjectStore(typing.NamedTuple):
    """A store: whose it is, and the hash of its URI."""

    project_id: str
    place: str


def project_of(session: orm.Session, task_id: str, host: str,
               kinds: tuple[str, ...]) -> str:
    """Return the project of a task that a host performs.

    :param kinds: of tasks that change a store
    :raises Forbidden: the host does not perform such a task
    """
    row = session.get(models.VersionTask, task_id)
    if (row is None or row.kind not in kinds or row.host != host
            or row.state != versions.RUNNING or row.cancelling):
        raise exceptions.Forbidden(
            f'Host {host} does not perform task {task_id}, so that it may'
            f' not change a store of versions with it.')
    return row.project_id


def read(session: orm.Session, store: ProjectStore) -> tuple[int, str] | None:
    """Return number and digest of a store's last catalogue."""
    row = session.get(models.VersionHead, store)
    return None if row is None else (row.number, row.digest)


def move(session: orm.Session, store: ProjectStore,
         base: tuple[int, str] | None,
         new: tuple[int, str], host: str, when: datetime.datetime) -> None:
    """Move the head of a store from one catalogue to the next.

    The head may be older than the one that was changed: then writers without
    a conductor moved it meanwhile. Again is no error.

    :param base: the catalogue that was changed; None in an empty store
    :raises Busy: another writer moved it from there
    :raises InvalidInput: the catalogues do not follow each other
    """
    if new[0] != (base[0] if base else 0) + 1:
        raise exceptions.InvalidInput(
            f'Catalogue {new[0]} does not follow catalogue'
            f' {base[0] if base else 0}.')
    if _replace(session, store, base, new, host, when):
        return
    found = read(session, store)
    if found == new:
        return  # The answer of the first call was lost.
    if found is not None:
        raise exceptions.Busy(
            f'Another writer moved the store of versions of project'
            f' {store.project_id} to catalogue {found[0]}: try again.')
    _refuse_more(session, store)
    session.add(models.VersionHead(
        project_id=store.project_id, place=store.place, number=new[0],
        digest=new[1], host=host, updated_at=when, next_pack=0, next_map=0,
        next_version=0))
    session.flush()


def take_numbers(session: orm.Session, store: ProjectStore,
                 least: list[int], count: list[int]) -> list[int]:
    """Take numbers of packs, maps and versions that no writer has.

    :param least: the first that no catalogue gives
    :param count: how many of each
    :returns: the first of each
    :raises InvalidInput: they are more than a save can have
    """
    if max(count) > _MOST_NUMBERS:
        raise exceptions.InvalidInput(
            f'{max(count)} numbers are more than a save has.')
    table = models.VersionHead
    row = session.scalar(sa.select(table).where(
        table.project_id == store.project_id, table.place == store.place)
        .with_for_update())
    if row is None:
        # The first commit decides which writer has them.
        return least
    known = row.next_pack, row.next_map, row.next_version
    if any(now and asked > now + _MOST_NUMBERS
           for asked, now in zip(least, known)):
        raise exceptions.InvalidInput(
            f'No catalogue gives the numbers {least}: {known} were taken.')
    first = [max(pair) for pair in zip(least, known)]
    if max(map(sum, zip(first, count))) >= 1 << 32:
        raise exceptions.InvalidInput(
            f'Project {store.project_id} has no numbers left for its store.')
    row.next_pack, row.next_map, row.next_version = map(
        sum, zip(first, count))
    return first


def forget(session: orm.Session, project_id: str) -> int:
    """Forget the heads of a project's stores; return how many."""
    table = models.VersionHead
    return session.execute(
        sa.delete(table).where(table.project_id == project_id)
        .execution_options(synchronize_session=False)).rowcount


def forget_void(session: orm.Session, project_id: str, number: int,
                digest: str) -> None:
    """Forget a head that was decided, and that the store has not accepted.

    Again it changes nothing, whatever was decided since.
    """
    table = models.VersionHead
    session.execute(
        sa.delete(table).where(table.project_id == project_id,
                               table.number == number,
                               table.digest == digest)
        .execution_options(synchronize_session=False))


def _replace(session, store, base, new, host, when):
    """Replace the head if it is what a writer changed, or older."""
    if base is None:
        return False
    table = models.VersionHead
    return session.execute(
        sa.update(table).where(
            table.project_id == store.project_id,
            table.place == store.place,
            sa.or_(table.number < base[0],
                   sa.and_(table.number == base[0],
                           table.digest == base[1])))
        .values(number=new[0], digest=new[1], host=host, updated_at=when)
        .execution_options(synchronize_session=False)).rowcount == 1


def _refuse_more(session, store):
    table = models.VersionHead
    count = session.scalar(sa.select(sa.func.count()).select_from(table)
                           .where(table.project_id == store.project_id))
    if count >= _MOST_PLACES:
        raise exceptions.PermanentError(
            f'Project {store.project_id} has {count} stores of versions'
            f' already: give all agents the same [versions] store, and run'
            f' "diffcache-manage version-store reset {store.project_id}".')
