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
"""Base images that are links to files which are still arriving.

A link in Nova's image cache points at a file of diffcached. When the agent
holds the whole image, the link is replaced by a file that it delivers, as any
other base image, and servers that run open that.
"""

import collections.abc
import contextlib
import errno
import logging
import os
import pathlib
import threading
import typing

from oslo_concurrency import processutils
from oslo_utils import fileutils

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.nova import boot_modes
from diffcache_openstack.nova import sources
from diffcache_openstack.nova import tallies

LOG = logging.getLogger(__name__)

# Of an unfinished link or file beside the one that it replaces.
SUFFIX = '.diffcache'
# Seconds between checks of links.
LOOK_SECONDS = 5.0
_HASH = 'hash'
_MIGRATION = 'live_migration'

# Runs a function while nothing else changes the base image of that name.
Locked = collections.abc.Callable[
    [str, collections.abc.Callable[[], bool]], bool]


class LazyBases:
    """Links to arriving files in Nova's image cache.

    :param client: the agent
    :param source: delivers whole images, and waits for an agent that restarts
    :param tally: counts
    :param hash_raw_images: whether images are read whole before they are used
    """

    def __init__(self, client: local_client.LocalClient,
                 source: sources.Source, tally: tallies.Tally,
                 hash_raw_images: bool) -> None:
        self._client = client
        self._source = source
        self._tally = tally
        self._hash_raw_images = hash_raw_images
        # Held from the moment a file is served until there is a link to it:
        # without one it would be released.
        self._linking = threading.Lock()
        self._migrating = threading.local()
        # By content: bases that were links to it when they were looked at.
        self._seen: dict[str, set[pathlib.Path]] = {}

    @contextlib.contextmanager
    def migrating(self) -> collections.abc.Iterator[None]:
        """Have images delivered whole within: their servers run elsewhere.

        Such a server has its disks as the other host described them, maybe
        without the policy that stops it at errors, and it need not wait.
        """
        self._migrating.now = True
        try:
            yield
        finally:
            self._migrating.now = False

    def link(self, wanted: sources.Wanted, target: str,
             inspect: collections.abc.Callable[[sources.Wanted, str], None]
             ) -> bool:
        """Make a base image a link to a file that is still arriving.

        :param inspect: raises if the file is not to be used
        :returns: False if the image is to be delivered whole, which is logged
            and counted
        """
        try:
            with self._linking:
                path, reason = self._open(wanted)
                if path is not None:
                    inspect(wanted, path)
                    place_link(path, target)
        except Exception as error:
            # The full delivery does without what went wrong here.
            reason, path = type(error).__name__, None
            LOG.warning('Image %s is delivered whole, not as it is read: %s',
                        wanted.id, error)
        if path is None:
            LOG.info('Image %s is delivered whole: %s', wanted.id, reason)
            self._tally.lazy(f'full_{reason}')
            return False
        self._tally.lazy('linked')
        LOG.info('Image %s is read from %s while it arrives', wanted.id, path)
        return True

    def _open(self, wanted: sources.Wanted) -> tuple[str | None, str]:
        if getattr(self._migrating, 'now', False):
            return None, _MIGRATION
        if (self._hash_raw_images and wanted.version is None
                and wanted.disk_format == sources.RAW):
            return None, _HASH
        found = self._source.open_lazy(wanted)
        return found.get('path'), str(found.get('reason'))

    def add_server(self, instance: typing.Any, image_id: str) -> None:
        """Announce that a server boots from a base that is a link.

        The agent learns from what it reads. A failure costs no server.

        :param instance: Nova's
        """
        try:
            self._source.add_lazy_server(instance.uuid, {
                'project_id': instance.project_id, 'image_id': image_id,
                'label': boot_modes.label(instance),
                **boot_modes.hydration(instance)})
        except exceptions.DiffCacheError as error:
            LOG.info('The agent does not learn from server %s: %s',
                     instance.uuid, error)

    def look(self, folder: pathlib.Path,
             name_of: collections.abc.Callable[[str], str],
             locked: Locked,
             leave: collections.abc.Callable[[pathlib.Path], bool]) -> None:
        """Replace links whose images are whole, and release what has none.

        :param folder: Nova's image cache
        :param name_of: returns the name of an image's base file
        :param leave: has servers open a base image that is a file now;
            returns whether no server reads what was there before
        """
        if not files.is_there(folder):
            return  # What it is on may not be mounted.
        for served in self._client.lazy():
            try:
                self._look_at(served, folder, name_of, locked, leave)
            except exceptions.ServiceUnavailable:
                raise
            except (OSError, exceptions.DiffCacheError) as error:
                # What cannot be seen is not gone: nothing is released.
                LOG.warning('Could not check who reads content %s: %s',
                            served['content_id'], error)

    def _look_at(self, served: dict[str, typing.Any], folder: pathlib.Path,
                 name_of: collections.abc.Callable[[str], str],
                 locked: Locked,
                 leave: collections.abc.Callable[[pathlib.Path], bool]
                 ) -> None:
        self._forget_servers(served, folder.parent)
        bases = self._bases_of(served, folder, name_of)
        if _is_whole(served):
            for base, image_id in bases.items():
                if links_to(base, served['path']):
                    self._replace(image_id, served, base, locked)
            # All, before what they read is removed.
            if not all([leave(base) for base in bases
                        if files.is_there(base)
                        and not base.is_symlink()]):
                return
        with self._linking:
            # Of all images: servers that are stopped may have disks on one
            # that the site no longer knows.
            if not find_links(folder, served['path']):
                self._seen.pop(served['content_id'], None)
                self._release(served['content_id'])

    def _bases_of(self, served: dict[str, typing.Any], folder: pathlib.Path,
                  name_of: collections.abc.Callable[[str], str]
                  ) -> dict[pathlib.Path, str | None]:
        """Return the bases of a content, each with an image that has it.

        Those are among them whose images were deleted or withdrawn; None
        stands for an image if none is left.
        """
        image_ids = served['image_ids']
        left = image_ids[0] if image_ids else None
        seen = self._seen.setdefault(served['content_id'], set())
        seen.update(find_links(folder, served['path']))
        named = {folder / name_of(image_id): image_id
                 for image_id in image_ids}
        return {**dict.fromkeys(seen, left), **named}

    def _forget_servers(self, served: dict[str, typing.Any],
                        instances: pathlib.Path) -> None:
        """Announce servers that have left: their folders are gone."""
        for server_id in served.get('servers', []):
            if not files.is_there(instances / server_id):
                self._client.remove_lazy_server(server_id)

    def _replace(self, image_id: str | None, served: dict[str, typing.Any],
                 base: pathlib.Path, locked: Locked) -> None:
        """Replace a link by a whole file, unless Nova removes it.

        :param image_id: to be delivered; None copies what is served
        """
        partial = f'{base}.whole{SUFFIX}'

        def put_in_place() -> bool:
            if not links_to(base, served['path']):
                return False  # Nova has removed it meanwhile.
            os.rename(partial, base)
            return True

        try:
            with fileutils.remove_path_on_error(partial):
                fileutils.delete_if_exists(partial)
                if image_id is None:
                    _copy(served['path'], partial)
                else:
                    self._source.deliver(_wanted(image_id, served), partial)
                if not locked(base.name, put_in_place):
                    fileutils.delete_if_exists(partial)
                    return
        except (exceptions.DiffCacheError,
                processutils.ProcessExecutionError) as error:
            LOG.warning('Could not replace the link %s by a file, will try'
                        ' again: %s', base, error)
            return
        self._tally.lazy('replaced')
        LOG.info('Image %s has arrived: %s is a file now',
                 image_id or served['content_id'], base)
        if image_id is not None:
            self._source.lend(image_id, str(base))

    def _release(self, content_id: str) -> None:
        try:
            self._client.release_lazy(content_id)
        except exceptions.NotFound as error:
            LOG.debug('Not released: %s', error)


def _is_whole(served: dict[str, typing.Any]) -> bool:
    """Return whether nothing more of a content is waited for.

    One of an image that was deleted or withdrawn is not held.
    """
    return bool(served.get('held')
                or served.get('complete') and not served['image_ids'])


def _copy(path: str, target: str) -> None:
    """Copy a file, with holes for zeros, and flush the copy.

    :raises ProcessExecutionError: there is no room, or it cannot be read
    """
    processutils.execute('dd', f'if={path}', f'of={target}', 'bs=1M',
                         'conv=sparse,fsync', 'status=none')


def _wanted(image_id: str, served: dict[str, typing.Any]) -> sources.Wanted:
    """Return the image, or version, to deliver for an image served."""
    version = served.get('version') or {}
    return sources.Wanted(
        image_id, sources.ACTIVE, sources.RAW, None, None,
        version=version.get('id'), owner=version.get('project_id'))


def place_link(path: str, target: str) -> None:
    """Put a link in its place, in one step."""
    partial = f'{target}{SUFFIX}'
    fileutils.delete_if_exists(partial)
    os.symlink(path, partial)
    with fileutils.remove_path_on_error(partial):
        os.rename(partial, target)


def find_links(folder: pathlib.Path, path: typing.Any) -> set[pathlib.Path]:
    """Return the bases that are links to a path, of whatever image.

    :param folder: Nova's image cache
    :raises OSError: that cannot be seen
    """
    with os.scandir(folder) as entries:
        links = [pathlib.Path(entry) for entry in entries
                 if entry.is_symlink() and not entry.name.endswith(SUFFIX)]
    return {link for link in links if links_to(link, path)}


def links_to(base: pathlib.Path, path: typing.Any) -> bool:
    """Return whether a file is a link to a path.

    :raises OSError: that cannot be seen
    """
    try:
        return os.readlink(base) == path
    except OSError as error:
        # It is no link, or there is nothing.
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
            return False
        raise
