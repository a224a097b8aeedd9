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
import datetime
import functools
import hashlib
import math
import types
import typing
from typing import Any
from typing import Callable
from typing import TypeVar

# Largest numbers of catalogues: of what is counted and named, of bytes, of a
# disk's size (16 TiB), and of a pack's blocks. Native code takes no larger
# ones.
_MOST_NUMBER = 2 ** 32 - 1
MOST_SIZE = 2 ** 63 - 1
_MOST_OF = {'size': 1 << 44, 'blocks': 1 << 24} | dict.fromkeys(
    ('number', 'generation', 'origin', 'level', 'key'), _MOST_NUMBER)
_DISK_FORMATS = ('raw', 'qcow2')
_Record = TypeVar('_Record')
_Check = Callable[[Any], object]


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
    for name, is_optional, check in _checks(
            type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        if value is not None or not is_optional:
            check(value)
    return record


@functools.cache
def _checks(kind: type) -> list[tuple[str, bool, _Check]]:
    """Return what checks the fields of a record, and which may be None."""
    found = []
    for field in dataclasses.fields(kind):
        kinds = (typing.get_args(field.type)
                 if isinstance(field.type, types.UnionType)
                 else (field.type,))
        found += [(field.name, types.NoneType in kinds, check)
                  for check in _checks_of(field.name, kinds)]
    return found


def _checks_of(name: str, kinds: tuple[Any, ...]) -> list[_Check]:
    found: list[_Check] = []
    if int in kinds:
        found.append(functools.partial(
            number, most=_MOST_OF.get(name, MOST_SIZE)))
    elif float in kinds:
        found.append(_refuse_other_numbers)
    elif str in kinds:
        found.append(required_text)
    elif bool in kinds:
        found.append(_refuse_other_booleans)
    by_name: dict[str, _Check] = {
        'check': refuse_other_checksums, 'disk_format': _refuse_other_formats,
        'created_at': datetime.datetime.fromisoformat}
    return found + ([by_name[name]] if name in by_name else [])


def _refuse_other_numbers(value: Any) -> None:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f'{value!r} is not a number')


def _refuse_other_booleans(value: Any) -> None:
    if type(value) is not bool:
        raise ValueError(f'{value!r} is neither true nor false')


def _refuse_other_formats(value: Any) -> None:
    if value not in _DISK_FORMATS:
        raise ValueError('a disk has an unknown format')


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
    return None if value is None else required_text(value)


def required_text(value: Any) -> str:
    """Return a text of a catalogue.

    :raises ValueError: it is none
    """
    if not isinstance(value, str):
        raise ValueError(f'{value!r} is not a text')
    return value
