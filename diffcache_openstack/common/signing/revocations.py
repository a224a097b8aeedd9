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
"""Revoked keys of hosts, as services without a database know them.

A conductor signs the list of all revoked keys. Lists are numbered, and a host
that has seen one accepts no earlier one, nor one that is not signed.
"""

import json
import logging
import math
import pathlib
import threading
import time
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.signing import host_keys

LOG = logging.getLogger(__name__)

_KIND = 'diffcache-revoked-keys'
_LARGEST_NUMBER = 2 ** 53


class RevokedKeys(typing.NamedTuple):
    """All keys that were revoked until an instant.

    :param number: of the list; each revocation raises it
    :param hosts: for each host, until when keys that are not accepted were
        issued, in seconds since 1970
    """

    number: int
    hosts: dict[str, float]


def sign(key: host_keys.HostKey, revoked: RevokedKeys) -> dict[str, str]:
    """Return a list as it is sent."""
    text = json.dumps([_KIND, revoked.number, time.time(), revoked.hosts])
    return {'list': text, 'certificate': key.certificate,
            'signature': key.sign(text.encode())}


class Revocations:
    """The newest list that this host has seen, in memory and in a file.

    :param path: of the file
    :param authority: verifies lists, and is to refuse revoked keys
    """

    def __init__(self, path: pathlib.Path, authority: host_keys.Authority
                 ) -> None:
        self._path = path
        self._authority = authority
        self._lock = threading.Lock()
        self._revoked = RevokedKeys(0, {})
        self._stored = 0
        self._load()
        authority.refuse_revoked(self)

    @property
    def number(self) -> int:
        """The number of the list in the file; 0 if there is none.

        A list that could not be stored is in use, and to be fetched again.
        """
        return self._stored

    def check(self, signer: host_keys.Signer) -> None:
        """Check that the key of a host is not revoked.

        :raises Forbidden: it is
        """
        until = self._revoked.hosts.get(signer.name)
        if until is not None and signer.issued <= until:
            raise exceptions.Forbidden(
                f'The key of {signer} was revoked; if the host is trusted'
                f' again, issue a new one with "diffcache-manage host-key'
                f' create".')

    def update(self, document: typing.Any) -> None:
        """Use another list from now on, even if it cannot be stored.

        :param document: as a conductor sent it
        :raises Forbidden: it is not signed by a controller, or is older than
            the list that this host has
        """
        found, _signed_at = self._read(document)
        with self._lock:
            used = self._revoked.number
            if found.number < used:
                raise exceptions.Forbidden(
                    f'The list of revoked keys number {found.number} is older'
                    f' than number {used}, which this host has. If the'
                    f' database was restored from a backup, remove'
                    f' {self._path} and restart the agent.')
            if found.number == self.number:
                return
            self._revoked = found
            LOG.info('Using list %d of revoked keys, of %d hosts',
                     found.number, len(found.hosts))
            self._store(document, found.number)

    def _store(self, document: typing.Any, number: int) -> None:
        try:
            files.write_json(self._path, document)
        except exceptions.NoSpace as error:
            LOG.error('Could not store list %d of revoked keys, which is'
                      ' in use until a restart: %s', number, error)
            return
        self._stored = number

    def _load(self) -> None:
        document = files.read_json(self._path)
        if document is None:
            return
        try:
            _found, signed_at = _parse(document)
            # Its certificate may have expired since.
            self._revoked, _signed_at = self._read(document, signed_at)
            self._stored = self._revoked.number
        except exceptions.Forbidden as error:
            LOG.error('Ignoring the stored list of revoked keys %s until the'
                      ' conductor sends one: %s', self._path, error)

    def _read(self, document: typing.Any, when: float | None = None
              ) -> tuple[RevokedKeys, float]:
        found = _parse(document)
        signer = self._authority.verify(
            document.get('certificate'), document.get('signature'),
            document['list'].encode(), when)
        if signer.role != host_keys.CONTROLLER:
            raise exceptions.Forbidden(
                f'The list of revoked keys is signed by the {signer}; only'
                f' controllers revoke keys.')
        return found


def _parse(document: typing.Any) -> tuple[RevokedKeys, float]:
    """Return a list, and when it was signed.

    :raises Forbidden: it is none
    """
    try:
        kind, number, signed_at, hosts = json.loads(document['list'])
        usable = kind == _KIND and isinstance(number, int) \
            and 0 <= number < _LARGEST_NUMBER \
            and math.isfinite(signed_at) and all(
                isinstance(host, str) and math.isfinite(until)
                for host, until in hosts.items())
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError,
            RecursionError) as error:
        raise exceptions.Forbidden(
            'The list of revoked keys cannot be read.') from error
    if not usable:
        raise exceptions.Forbidden('What was sent is no list of revoked keys.')
    return RevokedKeys(number, hosts), float(signed_at)
