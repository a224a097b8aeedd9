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
"""Short forms of what repositories register, to find what has changed."""

import hashlib
import json
import typing

from diffcache_openstack.objects import catalogue

# What stays as the repository whose record is kept has registered it.
OF_RECORD = ('data_size', 'form_id', 'form_size', 'record', 'compressed_size')

_COMMON = tuple(sorted(
    set(catalogue.Image.fields) - {'created_at', *OF_RECORD}))


class Fingerprint(typing.NamedTuple):
    """Hashes of an image, each of 64 hexadecimal digits.

    :param common: of what all repositories register alike
    :param record: of what stays while another repository's record is kept
    """

    common: str
    record: str


def of_image(image: catalogue.Image) -> Fingerprint:
    """Return the fingerprint of an image as it is, or would be, stored."""
    return Fingerprint(_hash(image, _COMMON), _hash(image, OF_RECORD))


def _hash(image, names):
    values = [_value(image, name) for name in names]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _value(image, name):
    if name == 'members':
        return sorted(set(image.members))
    if name == 'compressed_size':
        # None is stored for 0; no form counts for more than the data.
        return min(image.compressed_size or 0, image.data_size)
    return getattr(image, name)
