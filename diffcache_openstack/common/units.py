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
"""Amounts of bytes and seconds as people write them, and types of options.

Sizes follow the suite's formats: MB is 1e6 bytes, MiB is 2**20. A bare
number is bytes.
"""

import decimal
import math
import re
import typing

from oslo_config import types

_PATTERN = re.compile(r'^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*$', re.I)
_RATE = re.compile(r'^\s*(\d.*?[a-z])\s*(?:ps|/s)\s*$', re.I)
_BITS = re.compile(r'(?:[Bb]it|b)$')
_POWERS = {'': 0, 'k': 1, 'm': 2, 'g': 3, 't': 4}
_DURATIONS = {'s': 1, 'm': 60, 'h': 3600, 'd': 86400, 'w': 604800}
_STEPS = ('B', 'kB', 'MB', 'GB', 'TB')

MB = 1000 ** 2
MBIT = MB // 8


def parse_size(text: str | int) -> int:
    """Parse bytes from a text such as ``5GB``, ``512 MiB`` or ``1024``.

    :raises ValueError: the text is not an amount of bytes
    """
    match = _PATTERN.match(str(text))
    if match is None or (match[3] and not match[2]):
        raise ValueError(
            f'"{text}" is not an amount of bytes; write a number with one of'
            f' kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB')
    step = 1024 if match[3] else 1000
    return round(decimal.Decimal(match[1]) * step ** _POWERS[match[2].lower()])


def format_size(count: int) -> str:
    """Format a size for users: three digits and a unit of powers of 1000."""
    if count < 0:
        return f'-{format_size(-count)}'
    amount = float(count)
    for step in _STEPS[:-1]:
        if amount < 999.5:
            break
        amount /= 1000
    else:
        step = _STEPS[-1]
    digits = 0 if step == 'B' or amount >= 100 else 1
    return f'{amount:.{digits}f} {step}'


def parse_rate(text: str) -> int:
    """Parse bytes per second, such as ``20MBps``, ``160Mbps`` or ``20MB``.

    A small b or "bit" before "ps" or "/s" means bits.

    :raises ValueError: the text is not a rate
    """
    given = _RATE.match(text)
    amount = given[1] if given else text
    bits = _BITS.search(amount) if given else None
    try:
        size = parse_size(amount[:bits.start()] if bits else amount)
    except ValueError as error:
        raise ValueError(
            f'"{text}" is not a rate; write 20MBps (bytes per second) or'
            f' 160Mbps (bits per second)') from error
    return size // 8 if bits else size


def transfer_seconds(count: int, mbps: float) -> float:
    """Return how long bytes take over a link.

    :param mbps: Mbit/s
    """
    return 8 * count / MB / mbps


def parse_duration(text: str) -> int:
    """Parse seconds from a text such as ``30m``, ``6h`` or ``1d``.

    :raises ValueError: the text is not a duration
    """
    number, unit = text[:-1], text[-1:]
    if not number.isdecimal() or unit not in _DURATIONS:
        raise ValueError(
            f'"{text}" is not a duration; write 30m, 6h or 1d')
    return int(number) * _DURATIONS[unit]


def format_duration(count: int) -> str:
    """Format seconds with the largest unit that divides them: ``90m``."""
    for unit in ('d', 'h', 'm'):
        if count % _DURATIONS[unit] == 0:
            return f'{count // _DURATIONS[unit]}{unit}'
    return f'{count}s'


class Size(types.ConfigType):
    """An option's type: an amount of bytes, at least ``minimum``."""

    def __init__(self, minimum: int = 0):
        super().__init__(type_name='size in bytes')
        self.minimum = minimum

    def __call__(self, value: str | int) -> int:
        size = parse_size(value)
        if size < self.minimum:
            raise ValueError(f'{value} is less than {self.minimum} bytes')
        return size

    def __repr__(self) -> str:
        return f'Size(minimum={self.minimum})'

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.minimum == other.minimum

    def _formatter(self, value: int) -> str:
        return str(value)


class _Given:
    """Part of an option's type: refuses empty and infinite values, and NaN."""

    def __call__(self, value: typing.Any) -> typing.Any:
        # None and NaN are not outside of any bounds.
        number = super().__call__(value)  # type: ignore[misc]
        if number is None or not math.isfinite(number):
            raise ValueError(f'"{value}" is not a finite number')
        return number


class Count(_Given, types.Integer):
    """An option's type: a whole number within bounds."""


class Number(_Given, types.Float):
    """An option's type: a number within bounds."""
