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
"""Drawing a plan: families, the objects of each host, and their savings."""

import collections
import collections.abc
import os
import typing

import matplotlib

from diffcache_openstack.common import files

matplotlib.use('Agg')

from matplotlib import colors  # noqa: E402
from matplotlib import patches  # noqa: E402
from matplotlib import pyplot  # noqa: E402

# Beyond this many rows labels would cover each other.
_MOST_ROWS = 80
_ROW_INCHES = 0.28
_COLUMN_INCHES = 0.9
_SHADES = {False: 'Blues', True: 'Oranges'}
_LONGEST_NAME = 32


def draw_plan(plan: typing.Any,
              images: collections.abc.Iterable[typing.Any],
              path: str) -> None:
    """Draw a plan into a file whose ending says the format.

    Families are groups of rows under their name: an image that others were
    made from, those others, and the patches between them. A cell is an object
    on a host: the darker, the more seconds per day it saves, which it says; a
    frame means that it is held already. Families that save most are on top,
    and what is beyond the largest number of rows is left out.

    :param images: the catalogue, which names images and their families
    :raises OSError: the file cannot be written
    :raises ValueError: the ending names no format
    """
    rows = _rows(plan.items, _Names(images))
    hosts = sorted(plan.hosts)
    figure, (cells, bars) = pyplot.subplots(
        1, 2, sharey=True, layout='constrained',
        width_ratios=[max(2.0, len(hosts)), 2.0],
        figsize=(5.5 + _COLUMN_INCHES * max(2, len(hosts)),
                 1.8 + _ROW_INCHES * max(4, len(rows))))
    try:
        _draw_cells(cells, rows, hosts, plan)
        _draw_bars(bars, rows)
        figure.suptitle(_title(plan), fontsize=10)
        figure.legend(handles=_legend(), loc='outside lower center', ncols=3,
                      fontsize=8, frameon=False)
        _save(figure, path)
    finally:
        pyplot.close(figure)


class _Row(typing.NamedTuple):
    """A row: of an object, or if it has no items the name of a family."""

    label: str
    is_patch: bool
    items: list[dict]

    @property
    def saved(self) -> float:
        return sum(item['saved_seconds'] for item in self.items)


class _Names:
    """What images are called, and which family they are of."""

    def __init__(self, images: collections.abc.Iterable[typing.Any]
                 ) -> None:
        self._images = {image.id: image for image in images}
        self._by_content = {image.content_id: image.id for image
                            in self._images.values()}

    def of_image(self, image_id: str) -> str:
        """Return the name of an image."""
        found = self._images.get(image_id)
        text = found.name if found is not None and found.name else image_id
        return (text if len(text) <= _LONGEST_NAME
                else f'{text[:_LONGEST_NAME - 1]}…')

    def of_content(self, content_id: str) -> str:
        """Return the name of an image with this content."""
        image = self._by_content.get(content_id)
        return self.of_image(image) if image else content_id[:8]

    def of_item(self, item: dict) -> str:
        """Return the name of a plan's item, or of its target."""
        return (', '.join(map(self.of_image, item['images'][:2]))
                or self.of_content(item['target'] or item['id']))

    def family(self, item: dict) -> str:
        """Return the image that an item's family descends from."""
        content = item['target'] or item['id']
        image = next(iter(item['images']), None) \
            or self._by_content.get(content, content)
        seen: set[str] = set()
        while image not in seen:
            seen.add(image)
            found = self._images.get(image)
            image = found.family if found is not None and found.family \
                else image
        return image


def _rows(items, names):
    """Return families, the most useful first, each under its name."""
    families = collections.defaultdict(list)
    for item in items:
        families[names.family(item)].append(item)
    rows = []
    for family, members in sorted(families.items(), key=_by_use):
        rows.append(_Row(names.of_image(family), False, []))
        rows += _members(members, names)
    return rows[:_MOST_ROWS]


def _members(items, names):
    """Return a row for each object, grouped by the image they build."""
    images = collections.defaultdict(list)
    for item in items:
        images[item['target'] or item['id']].append(item)
    rows = []
    for _content, found in sorted(images.items(), key=_by_use):
        objects = collections.defaultdict(list)
        for item in found:
            objects[item['kind'] != 'images', item['id']].append(item)
        rows += [_Row(_label(same[0], names), is_patch, same)
                 for (is_patch, _id), same in sorted(objects.items())]
    return rows


def _by_use(named):
    name, items = named
    return -sum(item['saved_seconds'] for item in items), name


def _label(item, names):
    text, megabytes = names.of_item(item), item['bytes'] / 1e6
    if item['kind'] == 'patches':
        return f'{names.of_content(item["base"])} → {text},' \
               f' {megabytes:.1f} MB'
    return f'{text}, {megabytes:.0f} MB'


def _draw_cells(axes, rows, hosts, plan):
    column = {host: number for number, host in enumerate(hosts)}
    most = max((item['saved_seconds'] for item in plan.items), default=0.0)
    scale = colors.Normalize(0.0, most or 1.0)
    for number, row in enumerate(rows):
        if not row.items:
            axes.axhspan(number - 0.5, number + 0.5, color='0.93', zorder=0)
        for item in row.items:
            _draw_cell(axes, (column[item['host']], number), item,
                       scale(item['saved_seconds']))
    axes.set_xlim(-0.6, max(0.6, len(hosts) - 0.4))
    axes.set_ylim(max(1, len(rows)) - 0.4, -0.6)
    axes.set_xticks(range(len(hosts)), hosts, rotation=30, ha='right',
                    fontsize=8)
    axes.set_yticks(range(len(rows)), [row.label for row in rows],
                    fontsize=8)
    for label, row in zip(axes.get_yticklabels(), rows):
        label.set_fontweight('normal' if row.items else 'bold')
    axes.tick_params(length=0)


def _draw_cell(axes, place, item, share):
    x, y = place
    shades = pyplot.get_cmap(_SHADES[item['kind'] != 'images'])
    axes.add_patch(pyplot.Rectangle(
        (x - 0.42, y - 0.38), 0.84, 0.76, facecolor=shades(
            0.2 + 0.7 * share),
        edgecolor='black' if item['held'] else 'none'))
    saved = item['saved_seconds']
    axes.text(x, y, f'{saved:.0f}' if saved >= 100 else f'{saved:.3g}',
              fontsize=7, ha='center', va='center',
              color='white' if share > 0.55 else 'black')


def _draw_bars(axes, rows):
    axes.barh(range(len(rows)), [row.saved for row in rows], height=0.6,
              color=['C1' if row.is_patch else 'C0' for row in rows])
    for number, row in enumerate(rows):
        if not row.items:
            axes.axhspan(number - 0.5, number + 0.5, color='0.93', zorder=0)
    axes.set_xlabel('saves on all hosts, s/day', fontsize=8)
    axes.tick_params(labelsize=8)
    axes.tick_params(axis='y', length=0, labelleft=False)


def _legend():
    return [
        patches.Patch(facecolor=pyplot.get_cmap('Blues')(0.6),
                      label='image, with the s/day it saves'),
        patches.Patch(facecolor=pyplot.get_cmap('Oranges')(0.6),
                      label='patch from one image to another'),
        patches.Patch(facecolor='none', edgecolor='black',
                      label='framed: held already')]


def _title(plan):
    text = f'Site {plan.site}, plan {plan.generation or plan.id}' \
           f' ({plan.state})'
    if plan.cost_s is not None:
        text += (f'\n{plan.cost_s:.1f} s/day expected, at most'
                 f' {plan.gap:.1%} from the best')
    return text


def _save(figure, path):
    kind = os.path.splitext(path)[1].lstrip('.') or 'png'
    with files.replacing(path, durable=False) as part:
        figure.savefig(part, dpi=120, format=kind)
