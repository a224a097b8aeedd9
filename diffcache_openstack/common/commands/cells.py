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
"""Cells of what commands print: readable in tables, exact for programs."""

import re
import textwrap
import typing

from cliff import columns

from diffcache_openstack.common import units

# Columns of a terminal that a column of words in a table takes at most.
_WORDS = 30
# Entries of a list that a table shows.
_ROWS = 10


class Size(columns.FormattableColumn):
    """Bytes; in tables with a unit."""

    def human_readable(self) -> str:
        return '' if self._value is None else units.format_size(self._value)


class Rounded(columns.FormattableColumn):
    """A number; in tables with three decimals."""

    def human_readable(self) -> str:
        return '' if self._value is None else f'{self._value:.3f}'


class Share(columns.FormattableColumn):
    """A fraction; in tables as a percentage."""

    def human_readable(self) -> str:
        return '' if self._value is None else f'{self._value:.1%}'


class Absent(columns.FormattableColumn):
    """What there is no value of; in tables nothing."""

    def human_readable(self) -> str:
        return ''


class Hash(columns.FormattableColumn):
    """A hash; in tables its first digits."""

    def human_readable(self) -> str:
        return (self._value or '')[:12]


class Time(columns.FormattableColumn):
    """A time; in tables to the second."""

    def human_readable(self) -> str:
        return re.sub(r'\.\d+(?=Z$)', '', self._value or '')

    def machine_readable(self) -> str:
        return self._value or ''


class Names(columns.FormattableColumn):
    """A list of names; in tables separated by commas, in short lines."""

    def human_readable(self) -> str:
        return _in_lines(', '.join(self._value or ()))


class Text(columns.FormattableColumn):
    """Sentences; in tables in short lines."""

    def human_readable(self) -> str:
        return _in_lines(self._value or '')

    def machine_readable(self) -> str:
        return '' if self._value is None else self._value


class Lines(columns.FormattableColumn):
    """Sentences; in tables a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(self._value or ())


class Duration(columns.FormattableColumn):
    """Seconds; in tables with the largest unit that divides them."""

    def human_readable(self) -> str:
        return units.format_duration(self._value) if self._value else ''

    def machine_readable(self) -> typing.Any:
        return '' if self._value is None else self._value


class Named(columns.FormattableColumn):
    """Values under names; in tables a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(f'{name}: {words(value)}'
                         for name, value in (self._value or {}).items())

    def machine_readable(self) -> typing.Any:
        return '' if self._value is None else self._value


class Line(columns.FormattableColumn):
    """A number, or values under names; in tables one line."""

    def human_readable(self) -> str:
        return words(self._value)


class Rows(columns.FormattableColumn):
    """A list; in tables a line for each of the first entries."""

    def human_readable(self) -> str:
        lines = [words(row) for row in self._value[:_ROWS]]
        more = len(self._value) - len(lines)
        if more:
            lines.append(f'and {more} more (-f json shows all)')
        return '\n'.join(lines)


def words(value: typing.Any) -> str:
    """Return a value as a table shows it: no Python, no long numbers."""
    if isinstance(value, dict):
        return ', '.join(f'{name} {words(each)}'
                         for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ', '.join(map(words, value))
    if isinstance(value, float):
        return f'{value:.6g}' if abs(value) < 1e6 else f'{value:.0f}'
    return '' if value is None else str(value)


def cell(value: typing.Any) -> typing.Any:
    """Return a value as a cell, which shows it readably in a table."""
    if isinstance(value, dict):
        return Named(value)
    if isinstance(value, float):
        return Line(value)
    return Rows(value) if isinstance(value, (list, tuple)) else value


def _in_lines(text):
    return textwrap.fill(text, _WORDS, break_on_hyphens=False,
                         break_long_words=False)
