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
"""Drawing a profile: which chunks of an image are read when.

As figure 1 of Nicolae et al., "Optimizing Multi-deployment on Clouds by Means
of Self-adaptive Prefetching", with the mean times alone.
"""

import os
import typing

import matplotlib

from diffcache_openstack.common import files

matplotlib.use('Agg')

from matplotlib import pyplot  # noqa: E402

_MB = 10 ** 6
_SECOND_US = 10 ** 6


def draw(profile: typing.Any, path: str) -> None:
    """Draw a profile into a file whose ending says the format.

    A point is a chunk: its offset over the mean time of its first read, the
    darker, the more instances read it.

    :raises OSError: the file cannot be written
    :raises ValueError: the ending names no format
    """
    figure, axes = pyplot.subplots(figsize=(7, 4), layout='constrained')
    try:
        # Of what was carried no instance has read this image.
        most = max((count for _chunk, count, _mean_us in profile.rows),
                   default=1)
        points = axes.scatter(
            [mean_us / _SECOND_US for _chunk, _count, mean_us
             in profile.rows],
            [chunk * profile.chunk / _MB for chunk, _count, _mean_us
             in profile.rows],
            c=[100 * count / most for _chunk, count, _mean_us
               in profile.rows], s=8, cmap='viridis_r', vmin=0, vmax=100)
        figure.colorbar(points, label='instances that read it, %')
        axes.set_xlabel('mean time since the start of the instance, s')
        axes.set_ylabel('offset in the image, MB')
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.set_title(
            f'Image {profile.image_id}: {len(profile.rows)} chunks of'
            f' {profile.chunk >> 10} KiB, {profile.instances} instances',
            fontsize=9)
        kind = os.path.splitext(path)[1].lstrip('.') or 'png'
        with files.replacing(path, durable=False) as part:
            figure.savefig(part, dpi=120, format=kind)
    finally:
        pyplot.close(figure)
