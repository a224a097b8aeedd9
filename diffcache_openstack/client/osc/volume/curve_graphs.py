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
"""Drawing the curve of a volume: hits over sizes of its partition."""

import os
import typing

import matplotlib

from diffcache_openstack.common import files

matplotlib.use('Agg')

from matplotlib import pyplot  # noqa: E402

_GIB = 262144


def draw(curve: dict[str, typing.Any], name: str, limit: int, path: str
         ) -> None:
    """Draw a curve into a file whose ending says the format.

    A line marks the size that the partition has.

    :param limit: blocks
    :raises OSError: the file cannot be written
    :raises ValueError: the ending names no format
    """
    figure, axes = pyplot.subplots(figsize=(7, 4), layout='constrained')
    try:
        references = max(1, curve['references'])
        end = max([limit, *curve['sizes']])
        sizes = [0, *curve['sizes'], end]
        ratios = [0.0, *(100 * hits / references for hits in curve['hits'])]
        axes.step([size / _GIB for size in sizes], [*ratios, ratios[-1]],
                  where='post')
        axes.axvline(limit / _GIB, color='C1', linestyle='--',
                     label='its partition now')
        axes.set_xlabel('partition, GiB')
        axes.set_ylabel('hits, % of references')
        axes.set_ylim(0, 100)
        axes.set_title(f'{name}: {curve["references"]} references to'
                       f' {curve["distinct"]} blocks in'
                       f' {curve["seconds"]:.0f} s',
                       fontsize=9)
        axes.legend(fontsize=8)
        kind = os.path.splitext(path)[1].lstrip('.') or 'png'
        with files.replacing(path, durable=False) as part:
            figure.savefig(part, dpi=120, format=kind)
    finally:
        pyplot.close(figure)
