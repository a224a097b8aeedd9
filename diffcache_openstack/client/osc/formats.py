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
"""Output formats of values: readable in tables, exact for programs."""

import collections.abc
import typing

from cliff import columns

from diffcache_openstack.common import units


class Fill(columns.FormattableColumn):
    """Held part of a plan; in tables as a sentence."""

    def human_readable(self) -> str:
        plan = self._value or {}
        if not plan.get('objects'):
            return 'no plan'
        return (f'{plan["held_objects"]} of {plan["objects"]} objects,'
                f' {units.format_size(plan["held_bytes"])} of'
                f' {units.format_size(plan["bytes"])}')


class FillShare(columns.FormattableColumn):
    """Held part of a plan; in tables as a percentage of its bytes."""

    def human_readable(self) -> str:
        plan = self._value or {}
        if not plan.get('objects'):
            return 'no plan'
        share = plan['held_bytes'] / plan['bytes'] if plan['bytes'] else 1.0
        return f'{share:.0%} of {units.format_size(plan["bytes"])}'


class Progress(columns.FormattableColumn):
    """Ready targets of a job; in tables as a sentence."""

    def human_readable(self) -> str:
        counts = self._value or {}
        text = f'{counts.get("ready", 0)} of {counts.get("targets", 0)}'
        if counts.get('failed'):
            text += f', {counts["failed"]} failed'
        return text

    def machine_readable(self) -> dict[str, int]:
        return {name: (self._value or {}).get(name, 0)
                for name in ('targets', 'ready', 'failed')}


class BytesDone(columns.FormattableColumn):
    """Fetched bytes of a job; in tables as a sentence."""

    def human_readable(self) -> str:
        counts = self._value or {}
        return (f'{units.format_size(counts.get("bytes_done", 0))} of'
                f' {units.format_size(counts.get("bytes", 0))}')

    def machine_readable(self) -> dict[str, int]:
        return {name: (self._value or {}).get(name, 0)
                for name in ('bytes', 'bytes_done')}


# Names of the API that are abbreviations.
_SOURCES = {'repo': 'repository'}


class Links(columns.FormattableColumn):
    """Bandwidths of a host; in tables as a sentence."""

    def human_readable(self) -> str:
        return ', '.join(
            f'{_SOURCES.get(name, name)} {round(mbps, 2):g} Mbit/s'
            for name, mbps in (self._value or {}).items()
            if mbps is not None)


class FillLimits(columns.FormattableColumn):
    """Limits of the fills of a host; in tables as a sentence."""

    def human_readable(self) -> str:
        limits = self._value
        if not limits:
            return ''
        rate = 'no limit' if not limits['max_rate'] else \
            f'at most {units.format_size(limits["max_rate"])}/s'
        return f'{rate}, {", ".join(limits["windows"]) or "at any time"}'


class Standings(columns.FormattableColumn):
    """How hosts and repositories reach each other; a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(map(self._line, self._value or ()))

    @staticmethod
    def _line(standing):
        name = standing.get('name') or standing.get('host')
        state = 'answers' if standing['answers'] else \
            f'does not answer since {standing["since"]}' \
            f' ({standing["reason"]})'
        rate = '' if standing['mbps'] is None else \
            f', {round(standing["mbps"], 2):g} Mbit/s'
        return (f'{name}: {state}{rate}, {standing["transfers"]} transfers,'
                f' {standing["failures"]} failures,'
                f' {units.format_size(standing["bytes"])}')


class HostCounts(columns.FormattableColumn):
    """Hosts of a site; in tables as a sentence."""

    def human_readable(self) -> str:
        counts = self._value
        return (f'{counts["count"]}, {counts["alive"]} alive,'
                f' {units.format_size(counts["capacity"])}')


class Held(columns.FormattableColumn):
    """Held objects of hosts; in tables a line for each kind."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{kind}: {held["objects"]}, {units.format_size(held["bytes"])}'
            for kind, held in sorted((self._value or {}).items()))


class Ways(columns.FormattableColumn):
    """Ways of serving requests; in tables a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(map(self._line, self._value or ()))

    @staticmethod
    def _line(way):
        text = f'{way["way"]}: {way["requests"]}'
        if way['failed']:
            text += f', {way["failed"]} failed'
        if way['mean_s'] is not None:
            text += f', mean {way["mean_s"]:.3f} s'
        return text + f', WAN {units.format_size(way["wan_bytes"])}'


class Blocks(columns.FormattableColumn):
    """Blocks of 4 KiB; in tables their size with a unit."""

    def human_readable(self) -> str:
        return '' if self._value is None \
            else units.format_size(self._value * 4096)


class Decisions(columns.FormattableColumn):
    """Decisions about sizes; in tables their reasons under their times."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{decision["time"]}, {decision["policy"]}: {line}'
            for decision in self._value or ()
            for line in decision['explain'])


class Curve(columns.FormattableColumn):
    """Hits over sizes; in tables some of the sizes."""

    _MOST = 20

    def human_readable(self) -> str:
        steps = list(zip(self._value['sizes'], self._value['hits']))
        every = -(-len(steps) // self._MOST) or 1
        return '\n'.join(
            f'{units.format_size(size * 4096)}:'
            f' {hits / self._value["references"]:.1%}'
            for size, hits in reversed(steps[::-every]))


class Task(columns.FormattableColumn):
    """The current task of a version; in tables as a sentence."""

    def human_readable(self) -> str:
        task = self._value
        if not task:
            return ''
        return (f'{task["kind"]} {task["state"]},'
                f' {units.format_size(task["done"] or 0)} of'
                f' {units.format_size(task["total"] or 0)} ({task["id"]})')

    def machine_readable(self) -> typing.Any:
        return self._value or ''


class Disks(columns.FormattableColumn):
    """Disks of a version; in tables a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(
            f'{disk["device"]}: {units.format_size(disk["size"])}'
            + (f' (volume {disk["volume_id"]})' if disk.get('volume_id')
               else '') for disk in self._value or ())


class Targets(columns.FormattableColumn):
    """Targets of a job; in tables a line for each."""

    def human_readable(self) -> str:
        return '\n'.join(self._line(target) for target in self._value or ())

    @staticmethod
    def _line(target):
        done, total = target['bytes_done'] or 0, target['bytes_total'] or 0
        text = f'{target["host"]} {target["image_id"]}: {target["state"]}'
        if target['way']:
            text += f' ({target["way"]})'
        elif total:
            text += f' ({done / total:.0%})'
        if target['message']:
            text += f'; {target["message"]}'
        if target['retry_at']:
            text += f' Next try at {target["retry_at"]}.'
        return text


# A column: its heading, the attribute or key, and its format.
Column = tuple[str, str, type[columns.FormattableColumn] | None]


def table(shown: collections.abc.Sequence[Column],
          entries: collections.abc.Iterable[typing.Any]
          ) -> tuple[tuple[str, ...], list[tuple]]:
    """Return the table of resources or dicts that a lister prints."""
    return (tuple(heading for heading, _, _ in shown),
            [_row(shown, entry) for entry in entries])


def fields(shown: collections.abc.Sequence[Column], entry: typing.Any
           ) -> tuple[tuple[str, ...], tuple]:
    """Return the fields of a resource, with names as identifiers."""
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
