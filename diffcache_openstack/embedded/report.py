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
"""Tell what a testbed run measured: JSON document, table and chart.

The document is the interface: quickstart.json holds it, the table and the
chart are drawn from nothing else. Its fields:

identical   every image served had the sha256 of the image registered
links       wan_mbit_s, lan_mbit_s: what the shapers let through
images      name, size and data_size (bytes), sha256
modes       by name: mean_s, mean_filled_s (requests after the fill),
            predicted_filled_s (the same mean by the cost model),
            ratio_to_templates (of mean_filled_s), fill_s, wan_bytes (requests
            and fill), requests: number, host, image, seconds, predicted_s,
            filled (the cache was), wan_bytes, source, sha256, identical
hosts       name, capacity and used (bytes, the latter by mode)
boot        image, marker_seen, wan_bytes, seconds; None if no image was built
"""

import json
import pathlib
from typing import Any

from matplotlib.backends import backend_agg
from matplotlib import figure
from matplotlib import ticker

from diffcache_openstack.common import files

Document = dict[str, Any]

MODES = {
    'repository': 'plain Nova',
    'templates': 'templates only',
    'fetch_and_patch': 'fetch-and-patch',
    'on_the_fly': 'on-the-fly',
}
_COLOURS = {
    'repository': '#9e9e9e',
    'templates': '#4c72b0',
    'fetch_and_patch': '#dd8452',
    'on_the_fly': '#55a868',
}
_MEGABYTE = 1e6
_COLUMN = 16
_LABEL = 26


def write_json(document: Document, path: pathlib.Path) -> None:
    """Write the document; a reader sees the old file or the whole new one.

    :raises OSError: the file cannot be written
    """
    with files.replacing(path, durable=False) as unfinished:
        unfinished.write_text(json.dumps(document, indent=2) + '\n')


def table(document: Document) -> str:
    """Format the document for a terminal, at most 92 columns wide."""
    modes = _modes(document)
    sections = [_links(document), _images(document),
                _requests(document, modes), _summary(document, modes),
                _cache_use(document, modes), _verdict(document)]
    return '\n\n'.join('\n'.join(lines) for lines in sections) + '\n'


def _modes(document: Document) -> list[str]:
    return [name for name in MODES if name in document['modes']]


def _row(label: str, cells: list[str]) -> str:
    return label.ljust(_LABEL) + ''.join(c.rjust(_COLUMN) for c in cells)


def _heading(label: str, modes: list[str]) -> str:
    return _row(label, [MODES[name] for name in modes])


def _links(document: Document) -> list[str]:
    links = document['links']
    wan, lan = links['wan_mbit_s'], links['lan_mbit_s']
    return [f'Links: repository (WAN) {wan:g} Mbit/s, between hosts (LAN) '
            f'{lan:g} Mbit/s: 1 to {lan / wan:g}']


def _images(document: Document) -> list[str]:
    return ['Images (MB of data in a disk of so many MB, and MB of its '
            'compressed qcow2 file)', *(
                f'  {image["name"]:<22}{image["data_size"] / _MEGABYTE:8.1f}'
                f' of {image["size"] / _MEGABYTE:.1f}'
                f'{image["published_size"] / _MEGABYTE:10.1f}'
                for image in document['images'])]


def _requests(document: Document, modes: list[str]) -> list[str]:
    """Format each request's service time, one line for each."""
    lines = ['Service time of each request in seconds (* while the cache was '
             'being filled)', _heading('   host      image', modes)]
    streams = [document['modes'][name]['requests'] for name in modes]
    for same in zip(*streams, strict=True):
        first = same[0]
        label = f'{first["number"]:2} {first["host"]:<9} {first["image"]}'
        lines.append(_row(label, [_seconds(request) for request in same]))
    return lines


def _seconds(request: Document) -> str:
    return f'{request["seconds"]:.3f}' + (' ' if request['filled'] else '*')


def _summary(document: Document, modes: list[str]) -> list[str]:
    found = [document['modes'][name] for name in modes]
    rows = [_row(label, [f'{mode[field]:.3f} ' for mode in found])
            for label, field in (
                ('mean, all requests (s)', 'mean_s'),
                ('mean, cache filled (s)', 'mean_filled_s'),
                ('  by the cost model (s)', 'predicted_filled_s'),
                ('  ratio to templates only', 'ratio_to_templates'),
                ('time to fill (s)', 'fill_s'))]
    sent = [f'{mode["wan_bytes"] / _MEGABYTE:.1f} ' for mode in found]
    return [_heading('', modes), *rows, _row('WAN traffic (MB)', sent)]


def _cache_use(document: Document, modes: list[str]) -> list[str]:
    return [_heading('Cache use (MB of MB)', modes), *(
        _row(f'  {host["name"]}', [
            f'{host["used"][name] / _MEGABYTE:.0f} of'
            f' {host["capacity"] / _MEGABYTE:.0f} ' for name in modes])
        for host in document['hosts'])]


def _verdict(document: Document) -> list[str]:
    boot = document['boot']
    lines = ['Every image served is byte-identical to the one registered.'
             if document['identical'] else
             'SOME IMAGES SERVED DIFFER from those registered: see above.', *(
                 f'  {MODES[name]}, request {request["number"]}: '
                 f'{request["image"]} has sha256 {request["sha256"]}'
                 for name in _modes(document)
                 for request in document['modes'][name]['requests']
                 if not request['identical'])]
    if boot is None:
        return [
            *lines,
            'NO IMAGE WAS BUILT AT THE SITE, so none was booted: transfers',
            'were expected to take less time than patches, as on a machine',
            'with much other work. Run it again when there is less, with a',
            'new --state.']
    came_up = (f'the guest was up after {boot["seconds"]:.0f} s.'
               if boot['marker_seen'] else 'THE GUEST DID NOT COME UP.')
    return [*lines, f'Boot of {boot["image"]}, built at the site with '
                    f'{boot["wan_bytes"]} bytes over the WAN: {came_up}']


def draw(document: Document, path: pathlib.Path) -> None:
    """Draw service times per request (above) and cache use per host (below).

    The first is the DiffCache paper's figure 5, with a logarithmic axis
    because the modes are orders of magnitude apart; the second its figure 6.

    :param path: the PNG file to write
    :raises OSError: the file cannot be written
    """
    picture = figure.Figure(figsize=(11, 8), layout='constrained')
    backend_agg.FigureCanvasAgg(picture)
    above, below = picture.subplots(2, 1, height_ratios=(3, 2))
    _draw_requests(above, document)
    _draw_cache_use(below, document)
    with files.replacing(path, durable=False) as unfinished:
        picture.savefig(unfinished, dpi=120, format='png')


def _bars(axes: Any, names: list[str], heights: dict[str, list[float]]):
    """Draw one group of bars per name, one bar per mode in each."""
    width = 0.8 / len(heights)
    for index, (mode, values) in enumerate(heights.items()):
        shift = (index - (len(heights) - 1) / 2) * width
        axes.bar([place + shift for place in range(len(names))], values,
                 width, label=MODES[mode], color=_COLOURS[mode])
    axes.set_xticks(range(len(names)), names)
    axes.set_axisbelow(True)
    axes.grid(axis='y', alpha=0.4)


def _draw_requests(axes: Any, document: Document) -> None:
    modes = _modes(document)
    streams = {name: document['modes'][name]['requests'] for name in modes}
    _bars(axes, [f'{request["number"]}\n{request["image"]}'
                 for request in streams[modes[0]]],
          {name: [request['seconds'] for request in stream]
           for name, stream in streams.items()})
    for name in modes:
        axes.axhline(document['modes'][name]['mean_filled_s'],
                     color=_COLOURS[name], linestyle=':', linewidth=1)
    links = document['links']
    axes.set_yscale('log')
    axes.yaxis.set_major_formatter(ticker.FormatStrFormatter('%g'))
    axes.tick_params(axis='x', labelsize=8)
    axes.set_ylabel('service time (s, logarithmic)')
    axes.set_title(
        'Service time of each request (dotted: mean once the cache is '
        f'filled), WAN {links["wan_mbit_s"]:g}, LAN '
        f'{links["lan_mbit_s"]:g} Mbit/s', fontsize=10)
    axes.legend(ncols=len(modes), fontsize=8, loc='upper center')
    axes.margins(y=0.2)


def _draw_cache_use(axes: Any, document: Document) -> None:
    hosts = document['hosts']
    modes = [name for name in _modes(document) if name != 'repository']
    _bars(axes, [host['name'] for host in hosts],
          {name: [host['used'][name] / _MEGABYTE for host in hosts]
           for name in modes})
    for place, host in enumerate(hosts):
        axes.hlines(host['capacity'] / _MEGABYTE, place - 0.45, place + 0.45,
                    colors='black', label=None if place else 'capacity')
    axes.set_ylabel('cache in use (MB)')
    axes.set_title('Cache use per host', fontsize=10)
    axes.legend(ncols=len(modes) + 1, fontsize=8, loc='upper left')
    axes.margins(y=0.25)
