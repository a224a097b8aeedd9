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
"""Drawing a plan: families, who holds what, and what that saves."""

import collections
import collections.abc
import os
import typing

import matplotlib

matplotlib.use('Agg')

from matplotlib import colors  # noqa: E402
from matplotlib import pyplot  # noqa: E402

# Beyond so many rows labels would cover each other.
_MOST_ROWS = 60
_ROW_INCHES = 0.28
_COLUMN_INCHES = 1.1


def draw_plan(plan: typing.Any, names: collections.abc.Mapping[str, str],
              path: str) -> None:
    """Draw a plan into a file whose ending says the format.

    Rows are images, and below each the patches that make it, so that a
    family is a group of rows. A cell is an object on a host: the darker, the
    more seconds per day it saves; a frame means that it is held already.

    :param names: of images, by id
    :raises OSError: the file cannot be written
    :raises ValueError: the ending names no format
    """
    rows = _rows(plan.items, names)[:_MOST_ROWS]
    hosts = sorted(plan.hosts)
    figure, (cells, bars) = pyplot.subplots(
        1, 2, sharey=True, layout='constrained',
        width_ratios=[max(1, len(hosts)), 1.6],
        figsize=(4.5 + _COLUMN_INCHES * len(hosts),
                 1.6 + _ROW_INCHES * max(4, len(rows))))
    try:
        _draw_cells(cells, rows, hosts, plan)
        _draw_bars(bars, rows)
        figure.suptitle(_title(plan), fontsize=10)
        _save(figure, path)
    finally:
        pyplot.close(figure)


class _Row(typing.NamedTuple):
    label: str
    is_patch: bool
    items: list[dict]

    @property
    def saved(self) -> float:
        return sum(item['saved_seconds'] for item in self.items)


def _rows(items, names):
    """A row for each object, those that make the same image together."""
    groups: dict[str, dict[tuple, list]] = collections.defaultdict(
        lambda: collections.defaultdict(list))
    for item in items:
        made = item['target'] or item['id']
        groups[made][item['kind'] != 'templates', item['id']].append(item)
    rows = []
    for group in sorted(groups.values(), key=_saved_by, reverse=True):
        for (is_patch, _id), found in sorted(group.items()):
            rows.append(_Row(_label(found[0], names), is_patch, found))
    return rows


def _saved_by(group):
    return sum(item['saved_seconds'] for found in group.values()
               for item in found)


def _label(item, names):
    images = [names.get(image) or image[:8] for image in item['templates']]
    text = ', '.join(images)[:40] or item['id'][:12]
    megabytes = item['bytes'] / 1e6
    if item['kind'] == 'patches':
        return f'patch {item["base"][:8]} → {text} ({megabytes:.1f} MB)'
    return f'{text} ({megabytes:.0f} MB)'


def _draw_cells(axes, rows, hosts, plan):
    column = {host: number for number, host in enumerate(hosts)}
    most = max((item['saved_seconds'] for item in plan.items), default=0.0)
    scale = colors.Normalize(0.0, most or 1.0)
    shades = {False: pyplot.get_cmap('Blues'),
              True: pyplot.get_cmap('Oranges')}
    for number, row in enumerate(rows):
        for item in row.items:
            shade = 0.25 + 0.7 * scale(item['saved_seconds'])
            axes.add_patch(pyplot.Rectangle(
                (column[item['host']] - 0.4, number - 0.4), 0.8, 0.8,
                facecolor=shades[row.is_patch](shade),
                edgecolor='black' if item['held'] else 'none'))
    axes.set_xlim(-0.6, max(0.6, len(hosts) - 0.4))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xticks(range(len(hosts)), hosts, rotation=30, ha='right',
                    fontsize=8)
    axes.set_yticks(range(len(rows)), [row.label for row in rows],
                    fontsize=8)
    axes.set_xlabel('blue: image, orange: patch; framed: held already',
                    fontsize=8)


def _draw_bars(axes, rows):
    axes.barh(range(len(rows)), [row.saved for row in rows], height=0.6,
              color=['C1' if row.is_patch else 'C0' for row in rows])
    axes.set_xlabel('saves, s/day', fontsize=8)
    axes.tick_params(labelsize=8)


def _title(plan):
    text = f'Site {plan.site}, plan {plan.generation or plan.id}' \
           f' ({plan.state})'
    if plan.cost_s is not None:
        text += (f'\n{plan.cost_s:.1f} s/day expected, at most'
                 f' {plan.gap:.1%} from the best')
    return text


def _save(figure, path):
    """Write beside, then rename: there is the whole picture or none."""
    stem, ending = os.path.splitext(path)
    part = f'{stem}.part{ending}'
    try:
        figure.savefig(part, dpi=120)
        os.replace(part, path)
    except BaseException:
        if os.path.exists(part):
            os.unlink(part)
        raise
