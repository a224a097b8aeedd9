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
"""Former keys of a version store, encrypted with the present one.

While packs are still sealed with former keys, the catalogue has these keys,
encrypted (AES key wrap, RFC 3394) with a key that is derived from the present
one. Who has the present key so reads all packs, and the holder of a former key
gets no later one.
"""

import hmac

from cryptography.hazmat.primitives import keywrap

from diffcache_openstack.common import exceptions
from diffcache_openstack.versions.store.catalogue import catalogue


def former_keys(head: catalogue.Catalogue, key: bytes
                ) -> list[tuple[int, bytes]]:
    """Return the former keys that packs still have, by number.

    :param key: the present one
    :raises IntegrityError: they were not encrypted with it
    """
    try:
        return [(number, keywrap.aes_key_unwrap(_wrapping(key), wrapped))
                for number, wrapped in head.former_keys.items()]
    except (keywrap.InvalidUnwrap, ValueError) as exc:
        raise exceptions.IntegrityError(
            f'The former keys in catalogue {head.number} do not open with the '
            f'present one: restore the store from a copy.') from exc


def replace(head: catalogue.Catalogue, key: bytes, new: bytes) -> None:
    """Let a catalogue have a new key, and the former ones encrypted with it.

    :param key: the present one, which becomes a former one
    """
    kept = [*former_keys(head, key), (head.key_number, key)]
    head.former_keys = {
        number: keywrap.aes_key_wrap(_wrapping(new), each)
        for number, each in kept}
    head.key_number += 1


def _wrapping(key: bytes) -> bytes:
    return hmac.digest(key, b'diffcache version store former keys', 'sha256')
