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
"""Versions that diffcached serves while they arrive, as the agent sees them.

They take no room of the cache and are no objects of this host: each is read by
the servers that boot from it, and then is a file of Nova's.
"""

import logging
import pathlib
import typing

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.agent.lazy import version_reads
from diffcache_openstack.common import threads

LOG = logging.getLogger(__name__)


class LazyVersions:
    """Has versions served while they arrive.

    All but :meth:`open` are called in the turn of the content.

    :param daemon: serves them
    :param versions: knows where they are, over restarts
    :param servers: that use them
    :param turns: of contents
    """

    def __init__(self, daemon: diffcached.Diffcached,
                 versions: version_reads.VersionReads,
                 servers: lazy_servers.Servers,
                 turns: threads.KeyedLocks) -> None:
        self._daemon = daemon
        self._versions = versions
        self._servers = servers
        self._turns = turns
        # Those that no new server boots from.
        self._released: set[str] = set()
        self.disk_of = versions.disk_of
        self.content_of = versions.content_of
        self.content_ids = versions.content_ids

    def owns(self, content_id: str) -> bool:
        """Return whether a content is that of a version."""
        return self._versions.find(content_id) is not None

    def open(self, version: version_reads.ReadVersion,
             options: diffcached.Document) -> dict[str, typing.Any]:
        """Serve a version; see :meth:`.LazyImages.open_version`.

        :param options: as diffcached takes them
        """
        prepared = self._versions.prepare(version)
        if prepared is None:
            return {'path': None, 'reason': version_reads.NO_MANIFEST}
        with self._turns.of(prepared.content_id):
            if not self.owns(prepared.content_id):
                # It was forgotten before the turn came.
                self._versions.prepare(version)
            return self._add(version, prepared, options)

    def _add(self, version: version_reads.ReadVersion,
             prepared: version_reads.Prepared, options: diffcached.Document
             ) -> dict[str, typing.Any]:
        status = self._daemon.add(prepared.content_id, {
            'manifest': str(prepared.manifest), 'sources': prepared.sources,
            **options})
        self._released.discard(prepared.content_id)
        self._servers.follow(prepared.content_id, teaches=False)
        LOG.info('Serving version %s while it arrives, at %s', version.id,
                 status['path'])
        return {'path': status['path'], 'reason': None}

    def whole(self, version_id: str, project_id: str) -> pathlib.Path | None:
        """Return the file of a project's version that has arrived, if any.

        :raises ServiceUnavailable: diffcached does not answer
        """
        content_id = self._versions.content_of_version(version_id, project_id)
        if content_id is None:
            return None
        status = self._daemon.image(content_id)
        return pathlib.Path(status['data_path']) if status.get('complete') \
            else None

    def describe(self, status: diffcached.Document) -> diffcached.Document:
        """Return the fields of a version that diffcached's status lacks.

        ``held`` is whether all its bytes have arrived.
        """
        version = self._versions.find(status['content_id'])
        assert version is not None
        return {'held': bool(status.get('complete')),
                'version': {'id': version.id,
                            'project_id': version.project_id},
                'image_ids': list(version.image_ids)}

    def release(self, content_id: str) -> None:
        """Note that no new server boots from a version."""
        self._released.add(content_id)

    def look_at(self, content_id: str, status: diffcached.Document) -> bool:
        """Keep a version in its store until it has arrived.

        :returns: whether it needs to be served no longer
        """
        self._servers.follow(content_id, teaches=False)
        if status.get('complete'):
            self._versions.close(content_id)
        else:
            self._versions.renew(content_id)
        return content_id in self._released

    def forget(self, content_id: str) -> None:
        """Note that a version is served no longer."""
        self._released.discard(content_id)
        self._versions.forget(content_id)
