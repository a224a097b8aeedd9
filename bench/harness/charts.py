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
"""Charts of pages of the documentation, all in one style."""

import collections.abc
import pathlib

import matplotlib
from matplotlib import figure

# Text as text: short files, the same each time.
matplotlib.rcParams['svg.fonttype'] = 'none'
matplotlib.rcParams['svg.hashsalt'] = 'diffcache'


def draw(path: pathlib.Path, rows: int, columns: int,
         plot: collections.abc.Callable) -> None:
    """Write a chart; the same figures give the same file.

    :param plot: gets a list of axes, row by row
    """
    canvas = figure.Figure(figsize=(4.6 * columns, 3.1 * rows),
                           layout='constrained')
    plot(list(canvas.subplots(rows, columns, squeeze=False).flat))
    canvas.savefig(path, dpi=90, metadata={'Date': None}
                   if path.suffix == '.svg' else None)


def lines(axes, title: str, unit: str,
          series: dict[str, collections.abc.Sequence],
          **settings: str) -> None:
    """Plot a line for each series of (x, y)."""
    for label, points in series.items():
        axes.plot([x for x, _ in points], [y for _, y in points], 'o-', ms=3,
                  label=label)
    axes.set(title=title, ylabel=unit, **settings)
    axes.legend()
