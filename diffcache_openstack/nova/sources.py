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
"""Images from the agent of this host, as Nova needs them.

Whether an image is the agent's to deliver, and is the image that Glance
means, is decided here. Nothing here knows Nova.
"""

import collections.abc
import contextlib
import dataclasses
import hashlib
import logging
import os
import time
import types
import typing

from diffcache_openstack.agent_client import local_client
from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common import stand_ins
from diffcache_openstack.nova import tallies

LOG = logging.getLogger(__name__)

SERVICE = 'nova-compute'
ACTIVE = 'active'
# What the catalogue has; all else is rare, and Nova's to download.
RAW = 'raw'
FORMATS = (RAW, 'qcow2')


class NotOffered(exceptions.PermanentError):
    """An image that is not the agent's to deliver; nothing went wrong.

    :ivar reason: a short name for it, by which such images are counted
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class Wanted:
    """An image as Glance describes it to the requesting user.

    :param algorithm: name of the hash in Glance's ``os_hash_algo``
    :param digest: ``os_hash_value``; None if Glance has none
    :param size: bytes of the file; 0 if Glance does not say
    :param version: the version of a server that it stands for; None if it is
        what its file is
    :param owner: the project that it belongs to
    :param rate: bytes per second at which it is fetched at most while its
        first server reads it; None for no limit
    """

    id: str
    status: str
    disk_format: str | None
    algorithm: str | None
    digest: str | None
    size: int = 0
    version: str | None = None
    owner: str | None = None
    rate: int | None = None

    @classmethod
    def of(cls, meta: collections.abc.Mapping[str, typing.Any]) -> 'Wanted':
        """Create it from an image's metadata of Nova's image API."""
        more = meta.get('properties') or {}
        algorithm = meta.get('os_hash_algo') or more.get('os_hash_algo')
        digest = meta.get('os_hash_value') or more.get('os_hash_value')
        return cls(id=meta['id'], status=meta.get('status') or '',
                   disk_format=meta.get('disk_format'), algorithm=algorithm,
                   digest=digest, size=int(meta.get('size') or 0),
                   version=stand_ins.version_of(more, algorithm, digest),
                   owner=meta.get('owner'))


@dataclasses.dataclass(frozen=True)
class Delivery:
    """How an image came here.

    :param way: local, peer, build or repository
    """

    way: str
    detail: str
    seconds: float
    wan_bytes: int


class Source:
    """The agent of this host.

    :param mode: how to build images; None leaves it to the agent
    :param stall_timeout: seconds without a sign of life while it works
    :param records: verifies the repository's records of images
    :param patience: waits for an agent that is restarted
    """

    def __init__(self, client: local_client.LocalClient, mode: str | None,
                 stall_timeout: float, records: image_records.Verifier,
                 patience: restarts.Restarts) -> None:
        self._patience = patience
        self._records = records
        self._client = client
        self._mode = mode
        self._stall_timeout = stall_timeout

    def describe(self, wanted: Wanted,
                 formats: collections.abc.Collection[str] = FORMATS) -> dict:
        """Describe an image as the agent does, after comparing hashes.

        :param formats: of files that may be delivered as their raw content
        :raises NotOffered: the image is not the agent's to deliver
        :raises IntegrityError: the catalogue has another file under this id
        :raises Forbidden: no repository vouches for what the catalogue says
        :raises ServiceUnavailable: the agent does not answer
        """
        if wanted.status != ACTIVE:
            raise NotOffered('status', f'it is {wanted.status}, not active')
        if wanted.disk_format not in formats:
            raise NotOffered(
                'format', f'its format is {wanted.disk_format}')
        try:
            known = self._known(wanted)
        except exceptions.NotFound as error:
            raise NotOffered(
                'unknown', 'the catalogue does not have it') from error
        if known.get('status') != ACTIVE:
            raise NotOffered(
                'status', f'the catalogue has it as {known.get("status")}')
        _compare(wanted, known)
        self._records.check(types.SimpleNamespace(**{
            name: known.get(name)
            for name in (*image_records.COVERED, 'record')}))
        return known

    def _known(self, wanted: Wanted) -> dict:
        try:
            return self._patience.over(
                lambda: self._client.image(wanted.id))
        except exceptions.NotFound:
            if not wanted.size:
                raise
            # It may have been uploaded a moment ago.
            return self._client.new_image(wanted.id, wanted.size)

    def deliver(self, wanted: Wanted, output: str,
                own_bytes: int | None = None) -> Delivery:
        """Make the agent write the raw content of an image to a new file.

        :param own_bytes: what a download takes; None without that choice
        :raises NotOffered: the download takes fewer bytes over the WAN
        :raises DiffCacheError: what the agent reports; there is no file then
        """
        if wanted.version is not None:
            return self._deliver_version(wanted, output)

        def ask() -> dict[str, typing.Any]:
            # Of an attempt that the agent's end cut off.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(output)
            return self._client.content(
                wanted.id, output, mode=self._mode,
                stall_timeout=self._stall_timeout, own_bytes=own_bytes)

        try:
            request = self._patience.over(ask)
        except exceptions.DownloadCheaper as error:
            raise NotOffered('cheaper', str(error)) from error
        if not os.path.isfile(output):
            raise exceptions.IntegrityError(
                f'The agent says that image {wanted.id} is in {output}, which'
                f' does not exist; check that both see the same filesystem.')
        return Delivery(
            way=str(request.get('way') or 'unknown'),
            detail=str(request.get('detail') or ''),
            seconds=float(request.get('seconds') or 0.0),
            wan_bytes=int(request.get('wan_bytes') or 0))

    def _deliver_version(self, wanted: Wanted, output: str) -> Delivery:
        started = time.monotonic()

        def ask() -> None:
            # Of an attempt that the agent's end cut off.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(output)
            self._client.version_content(
                wanted.version or '',
                {'project_id': wanted.owner or '', 'output': output},
                self._stall_timeout)

        self._patience.over(ask)
        return Delivery('version', f'version {wanted.version}',
                        time.monotonic() - started, 0)

    def open_lazy(self, wanted: Wanted) -> dict[str, typing.Any]:
        """Have an image, or the version that it stands for, served.

        See the agent's client.

        :raises DiffCacheError: what the agent reports
        """
        if wanted.version is None:
            return self._patience.over(
                lambda: self._client.open_lazy(wanted.id, wanted.rate))
        version_id, reader = wanted.version, {
            'project_id': wanted.owner or '', 'image_id': wanted.id}
        return self._patience.over(
            lambda: self._client.open_version(version_id, reader,
                                              wanted.rate))

    def add_lazy_server(self, server_id: str, server: dict[str, typing.Any]
                        ) -> None:
        """Announce a server that boots from such an image.

        :raises DiffCacheError: what the agent reports
        """
        self._patience.over(
            lambda: self._client.add_lazy_server(server_id, server))

    def lend(self, image_id: str, path: str) -> None:
        """Let the agent serve a base image to other hosts.

        It verifies what it did not write itself.

        :param path: of a file with the raw content, which Nova keeps
        """
        try:
            self._client.lend(image_id, path)
        except exceptions.NotFound as error:
            LOG.debug('The agent does not use %s: %s', path, error)
        except exceptions.DiffCacheError as error:
            LOG.info('The agent does not use %s for other hosts: %s', path,
                     error)

    def report(self, tally: tallies.Tally) -> None:
        """Report fallbacks to the agent that it does not know yet."""
        for reason, count in tally.unreported().items():
            try:
                self._client.fallback(SERVICE, reason, count)
            except exceptions.DiffCacheError as error:
                LOG.info('Agent unreachable, will report fallbacks later:'
                         ' %s', error)
                return
            tally.reported(reason, count)


def _compare(wanted, known):
    """Check that Glance and the catalogue have the same file.

    :raises NotOffered: Glance has no hash to compare
    :raises IntegrityError: they do not
    """
    if not wanted.digest:
        raise NotOffered('no hash', 'Glance has no hash of it')
    theirs = (known.get('os_hash_algo'), known.get('os_hash_value'))
    if theirs != (wanted.algorithm, wanted.digest):
        raise exceptions.IntegrityError(
            f'Image {wanted.id} has the {wanted.algorithm} {wanted.digest} in'
            f' Glance, but the {theirs[0]} {theirs[1]} in the catalogue;'
            f' remove it there ("diffcache-manage image delete'
            f' {wanted.id}") and let it be registered again.')


def check_hash(wanted: Wanted, path: str) -> None:
    """Compute the hash that Glance has of a raw image.

    :param path: of the image's content, which is its file
    :raises IntegrityError: it is another one
    """
    if wanted.disk_format != RAW:
        return
    with open(path, 'rb') as content:
        found = hashlib.file_digest(content, wanted.algorithm or '')
    if found.hexdigest() != wanted.digest:
        raise exceptions.IntegrityError(
            f'The content delivered for image {wanted.id} has the'
            f' {wanted.algorithm} {found.hexdigest()[:16]}..., and Glance has'
            f' {(wanted.digest or "")[:16]}...; check the repository.')
