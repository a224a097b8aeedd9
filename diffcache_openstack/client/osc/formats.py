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
"""How values are shown: to people in words, to programs as they are."""

import collections.abc
import typing

from cliff import columns

from diffcache_openstack.common import units


class Size(columns.FormattableColumn):
    """Bytes, with a unit for people."""

    def human_readable(self) -> str:
        """Three digits and a unit."""
        return '' if self._value is None else units.format_size(self._value)


class Rounded(columns.FormattableColumn):
    """A number, with three digits behind the point for people."""

    def human_readable(self) -> str:
        """The number, rounded."""
        return '' if self._value is None else f'{self._value:.3f}'


class Share(columns.FormattableColumn):
    """A share of one, in per cent for people."""

    def human_readable(self) -> str:
        """Per cent."""
        return '' if self._value is None else f'{self._value:.1%}'


class Hash(columns.FormattableColumn):
    """A hash, of which the beginning does for people."""

    def human_readable(self) -> str:
        """The first twelve digits."""
        return (self._value or '')[:12]


class Names(columns.FormattableColumn):
    """Names, separated by commas for people."""

    def human_readable(self) -> str:
        """Them all."""
        return ', '.join(self._value or ())


class Fill(columns.FormattableColumn):
    """Held bytes of a plan's, in words for people."""

    def human_readable(self) -> str:
        """How much of how much."""
        plan = self._value or {}
        if not plan.get('objects'):
            return 'no plan'
        return (f'{plan["held_objects"]} of {plan["objects"]} objects,'
                f' {units.format_size(plan["held_bytes"])} of'
                f' {units.format_size(plan["bytes"])}')


class Progress(columns.FormattableColumn):
    """Targets of a job that are ready, in words for people."""

    def human_readable(self) -> str:
        """How many of how many."""
        counts = self._value or {}
        text = f'{counts.get("ready", 0)} of {counts.get("targets", 0)}'
        if counts.get('failed'):
            text += f', {counts["failed"]} failed'
        return text

    def machine_readable(self) -> dict[str, int]:
        """The numbers."""
        return {name: (self._value or {}).get(name, 0)
                for name in ('targets', 'ready', 'failed')}


class BytesDone(columns.FormattableColumn):
    """Bytes of a job's targets that are done, in words for people."""

    def human_readable(self) -> str:
        """How much of how much."""
        counts = self._value or {}
        return (f'{units.format_size(counts.get("bytes_done", 0))} of'
                f' {units.format_size(counts.get("bytes", 0))}')

    def machine_readable(self) -> dict[str, int]:
        """The numbers."""
        return {name: (self._value or {}).get(name, 0)
                for name in ('bytes', 'bytes_done')}


class Links(columns.FormattableColumn):
    """What a host is taken to receive at, in words for people."""

    def human_readable(self) -> str:
        """Each kind of source with its bandwidth."""
        return ', '.join(f'{name} {mbps:g} Mbit/s'
                         for name, mbps in (self._value or {}).items())


class HostCounts(columns.FormattableColumn):
    """Hosts of a site, in words for people."""

    def human_readable(self) -> str:
        """How many, and how much they may hold."""
        counts = self._value
        return (f'{counts["count"]}, {counts["alive"]} alive,'
                f' {units.format_size(counts["capacity"])}')


class Held(columns.FormattableColumn):
    """What hosts hold, a line for each kind for people."""

    def human_readable(self) -> str:
        """How many of each kind, and how large."""
        return '\n'.join(
            f'{kind}: {held["objects"]}, {units.format_size(held["bytes"])}'
            for kind, held in sorted((self._value or {}).items()))


class Ways(columns.FormattableColumn):
    """How requests were served, a line for each way for people."""

    def human_readable(self) -> str:
        """How many each way, how long they took, and what they moved."""
        return '\n'.join(map(self._line, self._value or ()))

    @staticmethod
    def _line(way):
        text = f'{way["way"]}: {way["requests"]}'
        if way['failed']:
            text += f', {way["failed"]} failed'
        if way['mean_s'] is not None:
            text += f', mean {way["mean_s"]:.3f} s'
        return text + f', WAN {units.format_size(way["wan_bytes"])}'


class Targets(columns.FormattableColumn):
    """A job's targets, a line for each for people."""

    def human_readable(self) -> str:
        """Where, how far, and what is wrong."""
        return '\n'.join(self._line(target) for target in self._value or ())

    @staticmethod
    def _line(target):
        done, total = target['bytes_done'] or 0, target['bytes_total'] or 0
        text = f'{target["host"]} {target["template_id"]}: {target["state"]}'
        if target['way']:
            text += f' ({target["way"]})'
        elif total:
            text += f' ({done / total:.0%})'
        if target['message']:
            text += f'; {target["message"]}'
        if target['retry_at']:
            text += f' Next try at {target["retry_at"]}.'
        return text


# A column: its heading, the attribute or key, and how it is shown.
Column = tuple[str, str, type[columns.FormattableColumn] | None]


def table(shown: collections.abc.Sequence[Column],
          entries: collections.abc.Iterable[typing.Any]
          ) -> tuple[tuple[str, ...], list[tuple]]:
    """What a lister prints of resources or dicts."""
    return (tuple(heading for heading, _, _ in shown),
            [_row(shown, entry) for entry in entries])


def fields(shown: collections.abc.Sequence[Column], entry: typing.Any
           ) -> tuple[tuple[str, ...], tuple]:
    """What showing one thing prints; headings as programs like them."""
    return (tuple(heading.lower().replace(' ', '_')
                  for heading, _, _ in shown), _row(shown, entry))


def _row(shown, entry):
    return tuple(_shown(_value(entry, name), kind)
                 for _, name, kind in shown)


def _value(entry, name):
    for part in name.split('.'):
        if entry is None:
            return None
        entry = entry.get(part) if isinstance(entry, dict) \
            else getattr(entry, part)
    return entry


def _shown(value, kind):
    if kind is None:
        return '' if value is None else value
    return kind(value)
