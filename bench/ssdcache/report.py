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
"""Tables of a page of the documentation, and the style of its charts."""

import matplotlib
from matplotlib import figure as mpl_figure

# Text as text: short files, the same each time.
matplotlib.rcParams['svg.fonttype'] = 'none'
matplotlib.rcParams['svg.hashsalt'] = 'ssdcache'


def percent(ratio):
    """Return a ratio in percent, or a dash if there is none."""
    return '-' if ratio is None else f'{100 * ratio:.1f}'


def table(caption, head, rows):
    """Return a table in reStructuredText."""
    lines = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines)]
    rule = ' '.join('=' * width for width in widths)
    text = [f'.. table:: {caption}', '']
    for number, line in enumerate(lines):
        if number < 2:
            text.append(rule)
        text.append(' '.join(cell.ljust(width) for cell, width in zip(
            line, widths)).rstrip())
    return '\n'.join([*(f'   {line}'.rstrip() if index else line
                        for index, line in enumerate(text)),
                      f'   {rule}', ''])


def canvas(rows, columns):
    """Return a figure, and its axes in rows."""
    figure = mpl_figure.Figure(figsize=(4.6 * columns, 3.1 * rows),
                               layout='constrained')
    return figure, figure.subplots(rows, columns, squeeze=False)


def save(figure, path):
    """Write a figure; the same figure gives the same file."""
    figure.savefig(path, dpi=90, metadata={'Date': None}
                   if str(path).endswith('.svg') else None)
