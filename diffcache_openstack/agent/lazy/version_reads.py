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
"""Versions that servers boot from while they arrive.

diffcached reads a store of files without a key itself. Other content it reads
from this agent, over the agent's own socket: such stores may be anywhere, and
only the agent has their keys and credentials.
"""

import collections
import collections.abc
import contextlib
import dataclasses
import logging
import os
import pathlib
import threading
import time
import typing

from diffcache_openstack import _native
from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.versions import base_files
from diffcache_openstack.agent.versions import project_stores
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common import threads
from diffcache_openstack import objects
from diffcache_openstack.objects import versions as version_objects
from diffcache_openstack.rpc import conductor_versions_api
from diffcache_openstack.versions.restore import reading
from diffcache_openstack.versions.restore import restoring
from diffcache_openstack.versions import version_store

LOG = logging.getLogger(__name__)

# Why a version is restored before its server boots.
NO_MANIFEST = 'no_manifest'
# Between two calls that keep a version from being deleted, seconds.
_RENEW_SECONDS = version_objects.READ_SECONDS / 3


@dataclasses.dataclass(frozen=True)
class ReadVersion:
    """A version that is read, and the images that stand for it.

    :ivar disk: what the store calls it
    :ivar base_path: of its base image, which is arriving, too; None if the
        host has it, or there is none
    """

    id: str
    project_id: str
    disk: str
    base_id: str | None
    base_name: str | None
    base_path: str | None = None
    image_ids: tuple[str, ...] = ()

    def to_disk(self, size: int = 0) -> objects.VersionDisk:
        """Return it as the conductor describes it."""
        return objects.VersionDisk(
            device='disk', version=self.disk, size=size, base_id=self.base_id,
            base_name=self.base_name)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A version that diffcached can serve.

    :ivar sources: where diffcached reads it
    """

    content_id: str
    manifest: pathlib.Path
    sources: list[dict[str, str]]


class VersionReads:
    """Versions that are served while they arrive, kept over restarts.

    :param stored: stores of projects
    :param bases: finds base images
    :param conductor: knows the versions
    :param host: name of this host
    :param directory: for manifests, bases and the record of what is served
    :param socket: of this agent
    """

    def __init__(self, stored: project_stores.ProjectStores,
                 bases: base_files.BaseFiles,
                 conductor: conductor_versions_api.VersionsAPI, host: str,
                 directory: pathlib.Path, socket: str) -> None:
        self._stores = stored
        self._bases = bases
        self._conductor = conductor
        self._host = host
        self._context = contexts.RequestContext.for_service(host)
        self._directory = directory
        self._socket = socket
        # What is brought for a content, or opened, is so in its turn: it may
        # take long, and other contents are read meanwhile.
        self._turns = threads.KeyedLocks()
        # Of the fields below.
        self._lock = threading.Lock()
        self._readers: dict[str, reading.VersionReader] = {}
        # Base images that are arriving: served as long as they are open.
        self._open_bases: dict[str, int] = {}
        self._served = {
            content_id: ReadVersion(**{**each, 'image_ids': tuple(
                each['image_ids'])})
            for content_id, each in (files.read_json(self._record)
                                     or {}).items()}
        # The time of the last call that keeps a version from being deleted.
        self._renewed = dict.fromkeys(self._served, -_RENEW_SECONDS)
        # How many restores read each version.
        self._restores: collections.Counter[str] = collections.Counter()
        for content_id, version in self._served.items():
            self._open_base(content_id, version)

    @property
    def _record(self) -> pathlib.Path:
        return self._directory / 'served.json'

    # -- what is served

    def disk_of(self, version_id: str, project_id: str
                ) -> objects.VersionDisk:
        """Return what the store has of a version, and keep that there.

        :param project_id: of the server that boots from it
        :raises NotFound: the project has no such version
        :raises Conflict: it is not complete, or has several disks
        :raises ServiceUnavailable: the conductor does not answer
        """
        return self._conductor.open_version(self._context, self._host,
                                            version_id, project_id)

    def prepare(self, version: ReadVersion) -> Prepared | None:
        """Note that a server boots from a version.

        :returns: None if its store keeps no manifest
        :raises Conflict: another version of the same content is served
        :raises ServiceUnavailable: the store does not answer
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        manifest = self._path(version, 'manifest')
        store = self._stores.open(version.project_id)
        try:
            store.load_manifest(version.disk, manifest)
        except exceptions.NotFound as error:
            LOG.info('Version %s: %s', version.id, error)
            return None
        with native_errors.translated():
            content_id = _native.manifest_info(manifest)['content_id']
        with self._turns.of(content_id):
            with self._lock:
                known = self._served.get(content_id)
                if known is not None and known.id != version.id:
                    # Its project may delete it, or its store, at any time.
                    manifest.unlink(missing_ok=True)
                    raise exceptions.Conflict(
                        f'Version {version.id} has the content of version'
                        f' {known.id}, which servers of this host read while'
                        f' it arrives; it is restored whole.')
                if known is not None:
                    version = dataclasses.replace(
                        known, image_ids=tuple(sorted(
                            {*known.image_ids, *version.image_ids})))
                manifest = manifest.replace(self._path(version, 'manifest'))
                self._served[content_id] = version
                self._renewed[content_id] = time.monotonic()
                self._save()
            self._open_base(content_id, version)
            return Prepared(content_id, manifest, self._sources(
                store, version, content_id))

    def _sources(self, store: version_store.VersionStore, version: ReadVersion,
                 content_id: str) -> list[dict[str, str]]:
        """Return where diffcached reads a version, the cheapest first."""
        agent = {'name': f'version {version.id}, by the agent',
                 'socket': self._socket,
                 'path': f'/v1/version-contents/{content_id}'}
        description = self._path(version, 'description')
        if not store.write_description(version.disk, description):
            return [agent]
        direct = {'version': version.id, 'description': str(description)}
        base = self._base_of(version)
        if base is not None:
            direct['base'] = str(base)
        # What a prune rewrites, the agent finds again.
        return [direct, agent]

    def find(self, content_id: str) -> ReadVersion | None:
        """Return the version with a content, if one is served."""
        with self._lock:
            return self._served.get(content_id)

    def content_of(self, image_id: str) -> str | None:
        """Return the content of the version that an image stands for."""
        with self._lock:
            return next((content_id for content_id, version
                         in self._served.items()
                         if image_id in version.image_ids), None)

    def content_of_version(self, version_id: str, project_id: str
                           ) -> str | None:
        """Return the content of a project's version, if it is served."""
        with self._lock:
            return next((content_id for content_id, version
                         in self._served.items()
                         if (version.id, version.project_id)
                         == (version_id, project_id)), None)

    def forget(self, content_id: str) -> None:
        """Note that a version is no longer served."""
        self.close(content_id)
        with self._turns.of(content_id):
            with self._lock:
                version = self._served.pop(content_id, None)
                reader = self._readers.pop(content_id, None)
                base = self._open_bases.pop(content_id, None)
                self._save()
            if base is not None:
                os.close(base)
            if reader is not None:
                reader.close()
            if version is not None:
                for kind in ('manifest', 'description', 'base'):
                    self._path(version, kind).unlink(missing_ok=True)

    def content_ids(self) -> list[str]:
        """Return the contents of the versions that are served."""
        with self._lock:
            return list(self._served)

    def renew(self, content_id: str) -> None:
        """Keep a version from being deleted, and its base from being removed.

        The conductor is called from time to time. A failure is logged: the
        next attempt follows.
        """
        with self._lock:
            version = self._served.get(content_id)
            last = self._renewed.get(content_id, -_RENEW_SECONDS)
        if version is not None:
            with self._turns.attempt(content_id) as is_mine:
                if is_mine:
                    self._open_base(content_id, version)
        if version is None or time.monotonic() < last + _RENEW_SECONDS:
            return
        self._keep_open(version.id, version.project_id)
        with self._lock:
            # It may have been forgotten meanwhile.
            if content_id in self._served:
                self._renewed[content_id] = time.monotonic()

    def close(self, content_id: str) -> None:
        """Let the conductor delete a version, all of which has arrived.

        It may be called any number of times.
        """
        with self._lock:
            version = self._served.get(content_id)
            is_open = self._renewed.pop(content_id, None) is not None
        if version is not None and is_open:
            self._give_back(version.id)

    def _keep_open(self, version_id: str, project_id: str) -> None:
        try:
            self._conductor.open_version(self._context, self._host,
                                         version_id, project_id)
        except exceptions.DiffCacheError as error:
            LOG.warning('Could not keep version %s, which servers boot from:'
                        ' %s', version_id, error)

    def _give_back(self, version_id: str) -> None:
        """Let the conductor delete a version, unless it is still read."""
        with self._lock:
            if self._restores[version_id] or any(
                    version.id == version_id and content_id in self._renewed
                    for content_id, version in self._served.items()):
                return
        try:
            self._conductor.close_version(self._context, self._host,
                                          version_id)
        except exceptions.DiffCacheError as error:
            LOG.info('Version %s can be deleted in %d s: %s', version_id,
                     version_objects.READ_SECONDS, error)

    def _save(self) -> None:
        files.write_json(self._record, {
            content_id: dataclasses.asdict(version)
            for content_id, version in self._served.items()})

    # -- content

    def open_reader(self, content_id: str) -> reading.VersionReader:
        """Return what reads the content of a version that is served.

        :raises NotFound: it is not served, or was deleted
        :raises ObjectMissing: its base image is neither here nor at the site
        """
        found = self._readers.get(content_id)
        if found is not None:
            return found
        with self._turns.of(content_id):
            with self._lock:
                version = self._served.get(content_id)
                found = self._readers.get(content_id)
            if version is None:
                raise exceptions.NotFound(
                    f'Content {content_id} is of no version that is served.')
            if found is None:
                store = self._stores.open(version.project_id)
                found = store.read(version.disk, self._base_of(version))
                with self._lock:
                    self._readers[content_id] = found
            return found

    def _base_of(self, version: ReadVersion) -> pathlib.Path | None:
        """Return the file of a version's base image, if it has one."""
        if version.base_path is not None:
            return pathlib.Path(version.base_path)
        path = self._path(version, 'base')
        if files.is_there(path):
            return path
        found, _ = self._bases.bring(version.to_disk(), path)
        return found

    def _open_base(self, content_id: str, version: ReadVersion) -> None:
        """Have diffcached serve the base image of a version for as long.

        In the turn of the content: another process answers.
        """
        with self._lock:
            is_open = content_id in self._open_bases
            is_served = content_id in self._served
        if version.base_path is None or is_open or not is_served:
            return
        try:
            base = os.open(version.base_path, os.O_RDONLY)
            with self._lock:
                self._open_bases[content_id] = base
        except OSError as error:
            LOG.warning('The base image of version %s cannot be opened at %s:'
                        ' %s', version.id, version.base_path, error)

    def _path(self, version: ReadVersion, kind: str) -> pathlib.Path:
        return self._directory / f'{version.disk}.{kind}'

    def restore(self, version_id: str, project_id: str, output: pathlib.Path,
                watch: contents.Watch) -> None:
        """Write a version to a raw file.

        :param watch: the client that waits for it
        :raises NotFound: the project has no such version
        :raises Cancelled: the client has gone
        """
        disk = self.disk_of(version_id, project_id)
        base = output.with_suffix('.base')
        job = version_store.Job(watch.progress, cancel=watch.gone)
        job.report(0, disk.size)
        with self._kept_open(version_id, project_id):
            try:
                path, base_id = self._bases.bring(disk, base)
                self._stores.open(project_id).export(
                    disk.version, restoring.Output(output, 'raw'), path,
                    base_id, job)
            finally:
                base.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _kept_open(self, version_id: str, project_id: str
                   ) -> typing.Iterator[None]:
        """Keep a version that was opened from being deleted meanwhile.

        Its base image may take longer to arrive than the conductor waits.
        """
        ended = threading.Event()

        def renew():
            while not ended.wait(_RENEW_SECONDS):
                self._keep_open(version_id, project_id)

        renewing = threading.Thread(target=renew, daemon=True,
                                    name='restored-version')
        with self._lock:
            self._restores[version_id] += 1
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            with self._lock:
                self._restores[version_id] -= 1
            self._give_back(version_id)
