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
"""Bundles: objects and a site map, in files that are carried to a site.

A bundle is a directory. ``bundle.json`` names the site, and is signed by the
host that created it. ``index`` and the numbered pieces are sealed with
ChaCha20-Poly1305 (RFC 8439), by a key that is derived from the one that all
agents share, the site and the bundle's ID, so that who finds the disk reads
nothing. What the objects are is verified when they arrive, as it is over the
network: by their hashes, and by the signed records of images.
"""

import collections.abc
import dataclasses
import hashlib
import hmac
import json
import os
import pathlib
import re
import secrets
import typing
import zlib

from cryptography import exceptions as crypto_exceptions
from cryptography.hazmat.primitives.ciphers import aead

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.sites import views

# Bytes of an object in one piece.
PIECE = 32 << 20
_FORMAT = 1
_HEAD, _INDEX = 'bundle.json', 'index'
_NONCE = 12
_ID = re.compile('[0-9a-f]{64}')
# Whose signature of a bundle is accepted.
_CREATORS = host_keys.REPOSITORY, host_keys.CONTROLLER

Progress = collections.abc.Callable[[int, int], object]


@dataclasses.dataclass(frozen=True)
class Packed:
    """An object of a bundle.

    :param size: bytes
    :param pieces: numbers of the pieces that have them
    """

    key: views.Key
    size: int
    pieces: range


class _Seal:
    """Seals and opens the files of one bundle.

    :param key: that the agents share
    """

    def __init__(self, key: bytes, site: str, bundle_id: str) -> None:
        self._cipher = aead.ChaCha20Poly1305(hmac.digest(
            key, f'diffcache bundle {bundle_id} {site}'.encode(), 'sha256'))

    def write(self, path: pathlib.Path, content: bytes) -> bytes:
        """Write a sealed file that belongs in its place; return its hash."""
        nonce = os.urandom(_NONCE)
        sealed = nonce + self._cipher.encrypt(nonce, content,
                                              path.name.encode())
        with files.space_errors(path), files.replacing(path) as part:
            part.write_bytes(sealed)
        return hashlib.sha256(sealed).digest()

    def read(self, path: pathlib.Path) -> bytes:
        """Return the content of a sealed file.

        :raises IntegrityError: it was sealed with another key, or damaged
        """
        sealed = path.read_bytes()
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:],
                                        path.name.encode())
        except (crypto_exceptions.InvalidTag, ValueError) as error:
            raise exceptions.IntegrityError(
                f'{path} is damaged, or of another deployment: copy it again,'
                f' and compare [data_plane] key_file with that of the host'
                f' that created the bundle.') from error


class Writer:
    """Writes a bundle.

    :param directory: is created, or empty
    :param key: that the agents share
    :raises Conflict: the directory has files
    """

    def __init__(self, directory: pathlib.Path, site: str, key: bytes
                 ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise exceptions.Conflict(
                f'{directory} is not empty; name another directory, or empty'
                f' it.')
        self._directory = directory
        self._site = site
        self._id = secrets.token_hex(16)
        self._seal = _Seal(key, site, self._id)
        self._objects: list[Packed] = []
        self._pieces = 0

    def add(self, key: views.Key, path: pathlib.Path,
            progress: Progress) -> None:
        """Add an object.

        :param progress: called with the bytes done, and all of it
        """
        first, size = self._pieces, path.stat().st_size
        with open(path, 'rb') as source:
            while content := source.read(PIECE):
                self._seal.write(self._directory / str(self._pieces), content)
                self._pieces += 1
                progress(source.tell(), size)
        self._objects.append(Packed(key, size, range(first, self._pieces)))

    def finish(self, contents: dict[str, typing.Any],
               signer: host_keys.HostKey | None) -> None:
        """Write the index, and last the file that makes it a bundle.

        :param contents: more for the index, as plain values
        :param signer: signs it, unless nothing is signed
        """
        index = {**contents, 'objects': [
            [*each.key, each.size, each.pieces.start, each.pieces.stop]
            for each in self._objects]}
        digest = self._seal.write(
            self._directory / _INDEX, zlib.compress(
                json.dumps(index).encode())).hex()
        head = {'format': _FORMAT, 'site': self._site, 'id': self._id,
                'index': digest}
        if signer is not None:
            head |= {'certificate': signer.certificate,
                     'signature': signer.sign(_signed(head))}
        files.write_json(self._directory / _HEAD, head)


class Bundle:
    """A bundle, as far as its files are there.

    :param key: that the agents share
    :param security: verifies who created it
    :raises FormatError: the directory has no bundle
    :raises Forbidden: it is of another site, or no repository signed it
    :raises IntegrityError: it is damaged
    """

    def __init__(self, directory: pathlib.Path, site: str, key: bytes,
                 security: signatures.Security) -> None:
        self._directory = directory
        self._head = head = files.read_json(directory / _HEAD)
        if not isinstance(head, dict) or head.get('format') != _FORMAT:
            raise exceptions.FormatError(
                f'{directory} has no bundle of format {_FORMAT}; {_HEAD} is'
                f' the last file that "bundle create" writes.')
        self.verify(security)
        if head['site'] != site:
            raise exceptions.Forbidden(
                f'The bundle in {directory} is for site {head["site"]}, and'
                f' this host is of site {site} ([agent] site).')
        self._seal = _Seal(key, site, str(head['id']))
        index = directory / _INDEX
        content = self._seal.read(index)
        if hashlib.sha256(index.read_bytes()).hexdigest() != head['index']:
            raise exceptions.IntegrityError(
                f'{index} is not the one that was signed: copy it again.')
        self.contents = json.loads(zlib.decompress(content))
        self.objects = [
            Packed(_key(kind, object_id), size, range(first, last))
            for kind, object_id, size, first, last
            in self.contents.pop('objects')]

    def verify(self, security: signatures.Security) -> None:
        """Check who created the bundle.

        :raises Forbidden: it is not signed, or not by a repository
        """
        _verify(self._head, security)

    def is_whole(self, packed: Packed) -> bool:
        """Return whether all pieces of an object are there."""
        return all(files.is_there(self._directory / str(number))
                   for number in packed.pieces)

    def unpack(self, packed: Packed, path: pathlib.Path) -> None:
        """Write an object to a file.

        :raises IntegrityError: a piece is damaged
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.space_errors(path), \
                files.replacing(path, durable=False) as part:
            with open(part, 'wb') as output:
                for number in packed.pieces:
                    output.write(self._seal.read(
                        self._directory / str(number)))


def _key(kind: str, object_id: str) -> views.Key:
    """Return the key of an object, which is the name of a file.

    :raises FormatError: it is none
    """
    if kind not in views.KINDS or not _ID.fullmatch(object_id):
        raise exceptions.FormatError(
            f'The bundle has {kind!r:.80} {object_id!r:.80}, which is no'
            f' object.')
    return views.Key(kind, object_id)


def _signed(head: dict) -> bytes:
    return json.dumps(['diffcache-bundle', head['site'], head['id'],
                       head['index']]).encode()


def _verify(head: dict, security: signatures.Security) -> None:
    if security.authority is None:
        return
    if 'signature' not in head and not security.required:
        return
    signer = security.authority.verify(
        head.get('certificate'), head.get('signature'), _signed(head))
    if signer.role not in _CREATORS:
        raise exceptions.Forbidden(
            f'The bundle is signed by the {signer}, and only a repository or'
            f' a controller creates bundles.')
