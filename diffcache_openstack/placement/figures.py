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
"""The paper's simulated figures 2, 3 and 4, drawn anew.

Each point is the mean over seeds of the mean service time in the setting of
section IV-A, with patches and without, by Algorithm 1 and by a solver of
ours.
"""

import collections.abc
import csv
import dataclasses
import os
import statistics

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.placement import solving
from diffcache_openstack.placement import workloads

# Columns of the CSV after the varied one, seconds per request.
SERIES = ('with_patches_s', 'templates_only_s', 'algorithm1_with_patches_s',
          'algorithm1_templates_only_s')


@dataclasses.dataclass(frozen=True)
class Figure:
    """The parameter that a figure varies.

    :param varied: parameter of :func:`workloads.synthetic`
    :param label: of the horizontal axis
    :param column: name of the varied column in the CSV
    :param scale: values of the axis are the parameter's over this
    """

    number: int
    varied: str
    values: tuple
    label: str
    column: str
    scale: float = 1.0


FIGURES = {
    2: Figure(2, 'capacity_mb',
              tuple(float(gb * 1000) for gb in range(10, 151, 10)),
              'cache space per host (GB)', 'capacity_gb', 1000.0),
    3: Figure(3, 'templates', tuple(range(5, 51, 5)), 'templates',
              'templates'),
    4: Figure(4, 'hosts', tuple(range(3, 11)), 'hosts', 'hosts'),
}


def points(
    figure: Figure,
    solver: solving.Solver,
    seeds: int = 3,
    time_limit: float | None = 2.0,
    progress: collections.abc.Callable[[int, int], None] = lambda *_: None,
) -> list[tuple[float, ...]]:
    """Compute the figure's rows: the varied value, :data:`SERIES`.

    :param time_limit: seconds for each solve
    :param progress: called with points done and points in all
    """
    greedy = solving.load('greedy')
    rows = []
    for n, value in enumerate(figure.values):
        samples = []
        for seed in range(seeds):
            instance = workloads.synthetic(seed=seed, **{figure.varied: value})
            samples.append(
                [
                    by.solve(case, time_limit=time_limit).cost_s
                    / instance.demand
                    for by in (solver, greedy)
                    for case in (instance, instance.without_patches())
                ]
            )
        means = (statistics.fmean(column) for column in zip(*samples))
        rows.append((value / figure.scale, *means))
        progress(n + 1, len(figure.values))
    return rows


def csv_path(path: str) -> str:
    """Return the path of a drawing's numbers: beside it, as CSV."""
    return os.path.splitext(path)[0] + '.csv'


def write(figure: Figure, rows: list[tuple[float, ...]], path: str) -> None:
    """Draw a figure to ``path`` (PNG) and its numbers beside it (CSV).

    Neither file appears before it is complete.

    :raises InvalidInput: a file cannot be written
    """
    numbers = csv_path(path)
    try:
        with files.replacing(numbers, durable=False) as part:
            with open(part, 'w', newline='', encoding='utf-8') as sink:
                table = csv.writer(sink)
                table.writerow((figure.column, *SERIES))
                for value, *seconds in rows:
                    table.writerow((value, *(round(s, 3) for s in seconds)))
        with files.replacing(path, durable=False) as part:
            _draw(figure, rows, part)
    except OSError as error:
        raise exceptions.InvalidInput(
            f'{path}: {error.strerror or error}; choose another --output'
        )


def _draw(figure, rows, path):
    # Imported here: it takes a second that no other command should wait.
    import matplotlib.figure

    canvas = matplotlib.figure.Figure(figsize=(7, 4.5), dpi=120)
    axes = canvas.add_subplot()
    columns = list(zip(*rows))
    styles = (('with patches', 'o-', 'tab:blue'),
              ('templates only', 's-', 'tab:red'),
              ('with patches, Algorithm 1', 'o:', 'tab:cyan'),
              ('templates only, Algorithm 1', 's:', 'tab:orange'))
    for seconds, (label, style, colour) in zip(columns[1:], styles):
        minutes = [s / 60 for s in seconds]
        axes.plot(columns[0], minutes, style, color=colour, label=label)
    axes.set_xlabel(figure.label)
    axes.set_ylabel('mean service time (minutes)')
    axes.set_title(f'Figure {figure.number}: caching with and without patches')
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    canvas.tight_layout()
    canvas.savefig(path, format='png')
