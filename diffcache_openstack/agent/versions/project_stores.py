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
"""Stores, keys and credentials of their own for some projects."""

import collections
import pathlib
import re
import threading
import typing

from oslo_config import cfg

from diffcache_openstack.agent.versions import arbiters
from diffcache_openstack.agent.versions import version_stores
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import barbican
from diffcache_openstack.conf import groups
from diffcache_openstack.conf import versions as version_options
from diffcache_openstack.versions.store.copies import replication
from diffcache_openstack.versions.store.inbox import acceptance
from diffcache_openstack.versions.store.upkeep import pruning
from diffcache_openstack.versions.store.upkeep import verification
from diffcache_openstack.versions import version_store

# What the name of a file may be made of.
_PROJECT = re.compile(r'[A-Za-z0-9_-]{1,64}')


class ProjectStores:
    """The stores of all projects, each as its configuration says.

    Parameters are those of :class:`.stores.Stores`. A file that is changed is
    read again with the next task.

    :ivar copy_reads: counts what was read from copies of stores
    """

    def __init__(self, conf: cfg.ConfigOpts, manager: typing.Any = None,
                 memory: pathlib.Path | None = None,
                 arbiter_of: arbiters.ArbiterOf | None = None) -> None:
        self._conf = conf
        self.copy_reads = collections.Counter(blobs=0, repaired=0, stores=0)
        self._options = (manager, memory, arbiter_of, self.copy_reads)
        self._common = version_stores.Stores(conf, *self._options)
        self._lock = threading.Lock()
        # By file, with the time of its change.
        self._own: dict[pathlib.Path, tuple[int, version_stores.Stores]] = {}

    def of(self, project_id: str) -> version_stores.Stores:
        """Return what opens the store of a project.

        :raises InvalidInput: its file cannot be used
        :raises Forbidden: this host stores no versions of the project
        """
        path = self._file(project_id)
        try:
            changed = path.stat().st_mtime_ns if path else None
        except FileNotFoundError:
            changed = None
        except OSError as error:
            raise exceptions.InvalidInput(
                f'{path}: {error.strerror}; let the agent\'s user read it.'
            ) from error
        if path is None or changed is None:
            return self._of_others(project_id)
        with self._lock:
            known = self._own.get(path)
            if known is None or known[0] != changed:
                known = (changed, self._read(path))
                self._own[path] = known
            return known[1]

    def _file(self, project_id: str) -> pathlib.Path | None:
        directory = self._conf.versions.projects_directory
        if not directory or not _PROJECT.fullmatch(project_id):
            return None
        return pathlib.Path(directory) / f'{project_id}.conf'

    def _of_others(self, project_id: str) -> version_stores.Stores:
        if self._conf.versions.listed_projects_only:
            raise exceptions.Forbidden(
                f'This host stores no versions of project {project_id}: put a'
                f' file {project_id}.conf with its credentials into [versions]'
                f' projects_directory.')
        return self._common

    def _read(self, path: pathlib.Path) -> version_stores.Stores:
        files = [*(self._conf.config_file or ()), str(path)]
        try:
            conf = _config(files)
        except cfg.Error as error:
            raise exceptions.InvalidInput(f'{path}: {error}') from error
        return version_stores.Stores(conf, *self._options)

    def open(self, project_id: str, task_id: str | None = None
             ) -> version_store.VersionStore:
        """Open the store of a project; see :meth:`.stores.Stores.open`."""
        return self.of(project_id).open(project_id, task_id)

    def open_for_save(self, project_id: str, task_id: str | None = None
                      ) -> version_store.VersionStore:
        """Open the store of a project, with a new key if it needs one."""
        return self.of(project_id).open_for_save(project_id, task_id)

    def is_readable(self, project_id: str) -> bool:
        """Return whether to read the store of a project, not its copy."""
        return self.of(project_id).is_readable(project_id)

    def replicate(self, project_id: str, job: version_store.Job
                  ) -> replication.Replicated:
        """Have the copy of a project's store follow it."""
        return self.of(project_id).replicate(project_id, job)

    def rebuild(self, project_id: str, job: version_store.Job
                ) -> replication.Replicated:
        """Create the store of a project, which was lost, of its copy."""
        return self.of(project_id).rebuild(project_id, job)

    def verify(self, project_id: str, job: version_store.Job
               ) -> verification.Verified:
        """Verify the store of a project, and repair it from its copy."""
        return self.of(project_id).verify(project_id, job)

    def keeps_manifests(self, project_id: str) -> bool:
        """Return whether saves of a project keep manifests of versions."""
        return self.of(project_id).keeps_manifests

    def accept(self, project_id: str, base_image: acceptance.BaseImage,
               job: version_store.Job, task_id: str) -> acceptance.Accepted:
        """Accept what hosts that may only add to a store have added.

        This host may be one that does not: then nothing is.
        """
        found = self.of(project_id)
        if not found.accepts:
            return acceptance.Accepted()
        return found.accept(project_id, base_image, job, task_id)

    def create_key(self, project_id: str) -> str | None:
        """Create the next key of a project, if a key manager keeps keys."""
        return self.of(project_id).create_key(project_id)

    def key_to_rotate_to(self, project_id: str, key_id: str | None
                         ) -> tuple[bytes, str | None]:
        """Return the key that the store of a project is to have next."""
        return self.of(project_id).key_to_rotate_to(project_id, key_id)

    @property
    def rewrite_limit(self) -> int:
        """Bytes that one task seals with another key at most."""
        return self._common.rewrite_limit

    @property
    def prune_rule(self) -> pruning.PruneRule:
        """Which packs a prune rewrites."""
        return self._common.prune_rule


def _config(files: list[str]) -> cfg.ConfigOpts:
    """Return the options of files that stores and keys need.

    :raises oslo_config.cfg.Error: a value does not fit its option
    """
    conf = cfg.ConfigOpts()
    for module in (version_options, barbican):
        groups.register(conf, module)
    barbican.ACCESS.register(conf)
    conf([], project='diffcache', default_config_files=files)
    for name in conf.versions:
        conf.versions[name]  # Checks its value.
    return conf
