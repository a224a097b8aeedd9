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
"""Signed records of images: which content the file has that Glance has.

The repository reads an image's file, computes the hash that Glance has of it,
and unpacks it. The record says so: this image, this file, this content; it is
signed with the repository's key. Agents believe an entry of the catalogue by
its record, whatever way it came, and also while nothing but the last site map
is at hand.
"""

import collections
import json
import threading
import typing

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import signatures

# What a record covers. Not what Glance changes: name, owner, status and so on.
COVERED = ('id', 'content_id', 'size', 'disk_format', 'file_size',
           'os_hash_algo', 'os_hash_value', 'form_id', 'form_size')
_KEPT = 100_000


def sign(key: host_keys.HostKey, image: typing.Any) -> str:
    """Return the record of an image.

    The same key and image give the same record.

    :param image: has the attributes COVERED
    """
    return json.dumps({'certificate': key.certificate,
                       'signature': key.sign(_content(image))})


class Verifier:
    """Verifies records of images.

    :param security: has the authority; None in it verifies nothing
    """

    def __init__(self, security: signatures.Security) -> None:
        self._security = security
        self._lock = threading.Lock()
        # Records that were verified, by what they are about.
        self._known: collections.OrderedDict[
            tuple[bytes, str], host_keys.Signer] = collections.OrderedDict()

    def check(self, image: typing.Any) -> host_keys.Signer | None:
        """Check the record of an image.

        :param image: has the attributes COVERED, and ``record``
        :returns: the repository that signed it; None if none has to
        :raises Forbidden: it is missing where one is required, wrong, or not
            signed by a repository
        """
        authority = self._security.authority
        if authority is None:
            return None
        if image.record is None:
            if self._security.required:
                raise exceptions.Forbidden(
                    f'Image {image.id} has no signed record; give the'
                    f' repository a key, [messaging] key_file, and restart'
                    f' it.')
            return None
        entry = (_content(image), image.record)
        with self._lock:
            signer = self._known.get(entry)
        if signer is not None:
            authority.check_revoked(signer)
            return signer
        signer = _verify(authority, image, *entry)
        with self._lock:
            self._known[entry] = signer
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return signer


def _verify(authority: host_keys.Authority, image: typing.Any,
            content: bytes, record: str) -> host_keys.Signer:
    try:
        given = json.loads(record)
        certificate, signature = given['certificate'], given['signature']
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise exceptions.Forbidden(
            f'The record of image {image.id} cannot be read.') from error
    try:
        signer = authority.verify(certificate, signature, content)
    except exceptions.Forbidden as error:
        raise exceptions.Forbidden(
            f'The record of image {image.id} is not valid: {error}'
        ) from error
    if signer.role != host_keys.REPOSITORY:
        raise exceptions.Forbidden(
            f'The record of image {image.id} is signed by the {signer}, and'
            f' only a repository vouches for images.')
    return signer


def _content(image: typing.Any) -> bytes:
    return json.dumps(['diffcache-image', *(
        getattr(image, name) for name in COVERED)]).encode()
