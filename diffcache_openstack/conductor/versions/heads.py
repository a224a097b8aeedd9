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
"""Which of several writers of a version store changes it.

Agents call it for stores whose locks do not exclude writers of other hosts:
:mod:`diffcache_openstack.versions.store.commits.arbitration`.
"""

import oslo_messaging

from diffcache_openstack.common import contexts
from diffcache_openstack.conductor.versions import project_shares
from diffcache_openstack.db import engine
from diffcache_openstack.db.versions import heads as db
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import conductor_versions_api


class StoreHeads:
    """The heads of stores, in the database; an RPC endpoint of agents."""

    target = conductor_versions_api.VersionsAPI.target()

    def __init__(self, database: engine.Database) -> None:
        self._database = database

    @oslo_messaging.expose
    def read_head(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str, place: str) -> list | None:
        """Return number and digest of the last catalogue, or None.

        :param task_id: changes the store of its project
        :param place: a hash of the store's URI
        :raises Forbidden: the host does not perform the task
        """
        found = self._database.read(_read, host, task_id, place)
        return None if found is None else list(found)

    @oslo_messaging.expose
    def move_head(self, ctxt: contexts.RequestContext, host: str,
                  task_id: str, place: str, base: list | None, head: list
                  ) -> None:
        """Move the head of a store to the next catalogue.

        :param base: number and digest of the catalogue that was changed
        :raises Busy: another writer moved it from there
        :raises Forbidden: the host does not perform the task
        """
        self._database.write(_move, (host, task_id, place),
                             tuple(base) if base else None, tuple(head))

    @oslo_messaging.expose
    def take_numbers(self, ctxt: contexts.RequestContext, host: str,
                     task_id: str, place: str, least: list, counts: list
                     ) -> list:
        """Return the first of numbers that no writer of a store has.

        :param least: the first packs, maps and versions without a number
        :param counts: how many of each are taken
        :raises Forbidden: the host does not perform the task
        :raises InvalidInput: they are more than a save can have
        """
        return self._database.write(_take_numbers, (host, task_id, place),
                                    least, counts)


def _read(session, host, task_id, place):
    return db.read(session, _store(session, host, task_id, place))


def _move(session, writer, base_of, new):
    db.move(session, _store(session, *writer), base_of, new, writer[0],
            versioned.now())


def _take_numbers(session, writer, least, count):
    return db.take_numbers(session, _store(session, *writer), least, count)


def _store(session, host, task_id, place):
    return db.ProjectStore(
        db.project_of(session, task_id, host, project_shares.WRITERS), place)
