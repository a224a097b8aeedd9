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
"""What numbers, names and checksums a catalogue may have."""

import dataclasses
import hashlib
from typing import Any
from typing import TypeVar

# Largest numbers of catalogues: of what is counted and named, of bytes, and of
# a disk's size (16 TiB). Native code takes no larger ones.
_MOST_NUMBER = 2 ** 32 - 1
MOST_SIZE = 2 ** 63 - 1
_MOST_DISK = 1 << 44
_DISK_FORMATS = (None, 'raw', 'qcow2')
_Record = TypeVar('_Record')


def number(value: Any, most: int = _MOST_NUMBER) -> int:
    """Return a number of a catalogue.

    :raises ValueError: it is none, negative, or larger than any
    """
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f'{value!r} is not a number from 0 to {most}')
    return value


def checked(record: _Record) -> _Record:
    """Return a record of a catalogue whose numbers and names are valid.

    :raises ValueError: one is not
    """
    for field in dataclasses.fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if field.type is int:
            most = MOST_SIZE if field.name != 'size' else _MOST_DISK
            if field.name in ('number', 'generation', 'origin', 'level',
                              'key'):
                most = _MOST_NUMBER
            number(value, most)
        elif field.type is float and type(value) not in (int, float):
            raise ValueError(f'{value!r} is not a number')
        elif field.type is str and not isinstance(value, str):
            raise ValueError(f'{value!r} is not a text')
        if field.name == 'check':
            refuse_other_checksums(value)
        elif field.name == 'disk_format' and value not in _DISK_FORMATS:
            raise ValueError('a disk has an unknown format')
    return record


def refuse_other_checksums(value: Any) -> None:
    """Refuse what is no SHA-256 in hex.

    :raises ValueError: it is none
    """
    if len(bytes.fromhex(value)) != hashlib.sha256().digest_size:
        raise ValueError(f'{value!r} is not a checksum')


def text(value: Any) -> str | None:
    """Return a text of a catalogue, or None.

    :raises ValueError: it is neither
    """
    if value is not None and not isinstance(value, str):
        raise ValueError(f'{value!r} is not a text')
    return value
