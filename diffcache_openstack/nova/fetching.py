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
"""Base images for Nova: from the agent if it can, else as Nova gets them."""

import collections.abc
import contextlib
import dataclasses
import errno
import logging
import os
import typing

from oslo_config import cfg
from oslo_utils import fileutils
from oslo_utils.imageutils import format_inspector

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import native_threads
from diffcache_openstack.nova import boot_modes
from diffcache_openstack.nova import lazy
from diffcache_openstack.nova import options
from diffcache_openstack.nova import sources
from diffcache_openstack.nova import tallies
from nova.compute import utils as compute_utils
from nova import exception as nova_exception
from nova.virt import images
from nova.virt.libvirt import utils as libvirt_utils

LOG = logging.getLogger(__name__)

# What a base image is called while it is delivered. Nova uses ".part" and
# ".converted" itself, and its image-cache aging looks at neither.
SUFFIX = lazy.SUFFIX
# What Nova takes for raw: with or without a partition table.
_RAW = ('raw', 'gpt')
# The start of an image that is arriving may have to cross the WAN.
_INSPECT_SECONDS = 120.0
# Of the largest images, on slow disks.
_HASH_SECONDS = 7200.0

# Nova's own: fetch(context=, target=, image_id=, trusted_certs=).
Fetch = collections.abc.Callable[..., None]


@dataclasses.dataclass(frozen=True)
class Reader:
    """What reads a base image.

    :ivar server: Nova's instance; None if the image is only cached
    :ivar overlay: whether its disk is an overlay, which leaves the base where
        it is
    """

    server: typing.Any = None
    overlay: bool = False


class Fetcher:
    """Brings base images to their place in Nova's image cache.

    :param fallback: :data:`.options.DOWNLOAD` or :data:`.options.ERROR`
    """

    def __init__(self, conf: cfg.ConfigOpts, source: sources.Source,
                 tally: tallies.Tally, fallback: str,
                 bases: lazy.LazyBases) -> None:
        self._conf = conf
        self._source = source
        self._tally = tally
        self._fallback = fallback
        self._bases = bases

    def around(self, own: Fetch, reader: Reader = Reader()) -> Fetch:
        """Wrap Nova's function to fetch an image: try the agent first."""
        def fetch(target: str, context: typing.Any, image_id: str,
                  **more: typing.Any) -> None:
            if not self._delivered(own, reader, target, context, image_id,
                                   **more):
                own(target=target, context=context, image_id=image_id, **more)
            self.lend(image_id, target)

        return fetch

    def note_reader(self, reader: Reader, image_id: str, name: str) -> None:
        """Announce a server to the agent if its base is still arriving.

        Also one whose base was there before it.

        :param name: of the base image in Nova's image cache
        """
        path = self.path(name)
        if reader.server is not None and reader.overlay \
                and os.path.islink(path):
            self._bases.add_server(reader.server, image_id)

    def path(self, name: str) -> str:
        """Return the path of a base image in Nova's image cache."""
        return os.path.join(
            self._conf.instances_path,
            self._conf.image_cache.subdirectory_name, name)

    def lend(self, image_id: str, path: str) -> None:
        """Let the agent serve a base image to other hosts.

        :param path: of a file with the raw content, which Nova keeps; links
            to arriving files are not lent
        """
        if os.path.islink(path):
            return
        try:
            self._source.lend(image_id, path)
        except Exception:
            # Servers need the image, and not that others get it.
            LOG.exception('Could not name %s to the agent', path)

    def _delivered(self, own, reader, target, context, image_id, **more
                   ) -> bool:
        """Deliver the image by the agent; return whether it did.

        :raises NovaException: Glance refuses the image to this user, or the
            agent failed and Nova is not to download the image
        :raises OSError: the image does not fit on the disk
        """
        try:
            self._check_signatures(more.get('trusted_certs'))
            # With the caller's token, as a download would be: whom Glance
            # does not show the image gets it from no cache either.
            meta = images.get_info(context, image_id)
            wanted = sources.Wanted.of(meta)
            mode = boot_modes.choose(
                reader.server, meta.get('properties') or {},
                self._conf.diffcache.boot_mode)
            if mode == options.LAZY and not reader.overlay:
                self._tally.passed('lazy: no overlay')
                mode = options.FULL
            if mode == options.LAZY:
                # By the time the server is announced it may be whole.
                wanted = dataclasses.replace(
                    wanted, rate=boot_modes.hydration(reader.server).get(
                        'hydrate_rate'))
            if wanted.version is not None:
                self._deliver_version(mode, wanted, target)
                return True
            return self._try(own, mode, wanted, target)
        except sources.NotOffered as reason:
            LOG.info('Downloading image %s from Glance: %s', image_id, reason)
            self._tally.passed(reason.reason)
            return False

    def _deliver_version(self, mode: str, wanted: sources.Wanted, target: str
                         ) -> None:
        """Deliver the version that an image stands for.

        What Glance has in its place is no disk, so there is no fallback.

        :raises ImageNotFound: it was deleted; Nova may have another host that
            has the base image
        :raises CouldNotFetchImage: the agent cannot deliver it
        """
        try:
            if mode == options.LAZY and self._bases.link(wanted, target,
                                                         self._inspect):
                return
            self._bring(wanted, target, None)
        except Exception as error:
            # The edge to another project's code.
            self._tally.fell_back(wanted.id, type(error).__name__, str(error))
            LOG.error('Could not deliver version %s, which image %s names: %s',
                      wanted.version, wanted.id, error)
            if isinstance(error, exceptions.NotFound):
                raise nova_exception.ImageNotFound(
                    image_id=wanted.id) from error
            raise nova_exception.CouldNotFetchImage(
                image_id=wanted.id) from error

    def _check_signatures(self, trusted_certs):
        glance = self._conf.glance
        if (trusted_certs or glance.verify_glance_signatures
                or (glance.enable_certificate_validation
                    and glance.default_trusted_certificate_ids)):
            raise sources.NotOffered(
                'signature', 'its signature is to be verified while it is'
                ' downloaded')

    def _try(self, own, mode, wanted, target) -> bool:
        # Kernels and the like are used as they are: their file has to be
        # its own raw content.
        formats = (sources.FORMATS if own is not libvirt_utils.fetch_raw_image
                   else sources.FORMATS[:1])
        known = {}
        try:
            known = self._source.describe(wanted, formats)
            if mode == options.LAZY and self._bases.link(
                    wanted, target, self._inspect):
                return True
            self._bring(wanted, target, self._own_bytes(known))
        except sources.NotOffered:
            raise
        except Exception as error:
            # The edge to another project's code: whatever is wrong with
            # ours must not cost a server that Nova alone could start.
            self._failed(wanted, error)
            self._check_space(wanted, target, known, error)
            return False
        self._source.report(self._tally)
        return True

    def _own_bytes(self, known):
        """Return the bytes of Nova's own download; None if it is forbidden."""
        if self._fallback == options.ERROR:
            return None
        return int(known.get('file_size') or 0) or None

    def _bring(self, wanted, target, own_bytes):
        partial = target + SUFFIX
        fileutils.delete_if_exists(partial)
        with fileutils.remove_path_on_error(partial):
            # A limit of Nova's heavy disk operations holds for these too.
            with compute_utils.disk_ops_semaphore:
                delivery = self._source.deliver(wanted, partial, own_bytes)
            self._inspect(wanted, partial)
            if (self._conf.diffcache.hash_raw_images
                    and wanted.version is None):
                native_threads.call(_HASH_SECONDS, sources.check_hash,
                                    wanted, partial)
            os.rename(partial, target)
        self._tally.delivered(delivery.way, delivery.wan_bytes)
        LOG.info('Image %s delivered by the agent in %.2f s (%s): %s; %d'
                 ' bytes crossed the WAN', wanted.id, delivery.seconds,
                 delivery.way, delivery.detail, delivery.wan_bytes)

    def _inspect(self, wanted, path):
        """Check that Nova and QEMU will detect the file as raw.

        Content that looks like an image of another format may be there to
        make a host open files that are not the guest's to read.

        :raises FormatError: it looks like another format
        """
        if not self._conf.workarounds.disable_deep_image_inspection:
            found = _inspected(path)
            if found not in _RAW:
                raise _not_raw(wanted, found)
        # Nova looks at it in the thread of all: not while that may wait.
        native_threads.call(_INSPECT_SECONDS, os.stat, path)
        found = images.qemu_img_info(path).file_format
        if found != 'raw':
            raise _not_raw(wanted, found)

    def _failed(self, wanted, error):
        reason = type(error).__name__
        if not isinstance(error, exceptions.DiffCacheError):
            LOG.exception('The agent failed to deliver image %s', wanted.id)
        total = self._tally.fell_back(wanted.id, reason, str(error))
        then = ('Nova downloads it' if self._fallback == options.DOWNLOAD
                else 'and [diffcache] fallback = error forbids a download')
        LOG.warning('Image %s was not delivered by the agent (%s: %s); %s.'
                    ' Fallback number %d', wanted.id, reason, error, then,
                    total)
        if self._fallback == options.ERROR:
            raise nova_exception.CouldNotFetchImage(
                image_id=wanted.id) from error

    def _check_space(self, wanted, target, known, error):
        """Check after NoSpace whether a download could fit at all.

        :raises OSError: it could not; not to be found out over the WAN
        """
        if not isinstance(error, exceptions.NoSpace):
            return
        directory = os.path.dirname(target)
        state = os.statvfs(directory)
        free = state.f_bavail * state.f_frsize
        needed = int(known.get('data_size') or 0)
        if free < needed:
            raise OSError(
                errno.ENOSPC, f'Image {wanted.id} needs {needed}'
                f' bytes and {directory} has {free}; free space there, or'
                f' change [DEFAULT] instances_path') from error


def warm(path: str) -> None:
    """Look at and read what Nova will of an arriving image.

    Under eventlet Nova does so in the thread that runs all of it, while
    diffcached may hang, or the start of the image cross the WAN. The kernel
    answers it from its caches then.

    :param path: of a base image; nothing is done unless it is a link
    :raises ServiceUnavailable: diffcached does not answer
    """
    if os.path.islink(path):
        native_threads.call(_INSPECT_SECONDS, _read_start, path)


def _read_start(path):
    with contextlib.suppress(FileNotFoundError,
                             format_inspector.ImageFormatError):
        images.get_image_format(path)


def _inspected(path):
    """Return the format that Nova's inspection finds, or its objection."""
    try:
        inspector = native_threads.call(
            _INSPECT_SECONDS, images.get_image_format, path)
        inspector.safety_check()
    except (format_inspector.ImageFormatError,
            format_inspector.SafetyCheckFailed) as error:
        return f'something unsafe ({error})'
    return str(inspector)


def _not_raw(wanted, found):
    return exceptions.FormatError(
        f'The content of image {wanted.id} looks like {found}, not like a raw'
        f' disk; Nova decides what to make of it.')
