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
"""A case that runs, and its result."""

import collections.abc
import json
import multiprocessing
import os
import pathlib
import statistics
import sys
import time
import types
import typing

from bench.harness import cases
from bench.harness import errors
from bench.harness import machine
from bench.harness import tables

_started = time.monotonic()


def say(text: str) -> None:
    """Print a line of progress on standard error."""
    print(f'[{time.monotonic() - _started:5.0f}s] {text}', file=sys.stderr,
          flush=True)


class Run:
    """What the function of a case gets.

    :ivar options: values of the case's options, as attributes
    :ivar quick: whether sizes are to be tiny
    :ivar work: an empty folder, which is removed in the end
    :ivar document: the result: options, samples, tables, and the machine
    """

    def __init__(self, case: cases.Case, options: dict[str, typing.Any],
                 output: pathlib.Path, work: pathlib.Path, *,
                 quick: bool = False, again: bool = False) -> None:
        """Take up the samples of an earlier run with the same options.

        :param output: folder of results
        :param again: measure what is there already anew
        """
        self.case = case
        self.options = types.SimpleNamespace(**options)
        self.quick = quick
        self.work = work
        self.tables: list[tables.Table] = []
        self._again = again
        self._fresh: set[str] = set()
        self._files = output / f'{case.suite}-{case.name}'
        selecting = {each.name for each in case.options if each.selects}
        self.document = {
            'suite': case.suite, 'case': case.name,
            'options': json.loads(json.dumps({'quick': quick} | {
                name: value for name, value in options.items()
                if name not in selecting}, default=str)),
            'machine': machine.describe(), 'samples': {}, 'tables': []}
        path = self.path('json')
        if path.exists():
            before = json.loads(path.read_text())
            if before['options'] == self.document['options']:
                self.document['samples'] = before['samples']

    def path(self, suffix: str) -> pathlib.Path:
        """Return the path of a file of the result.

        :param suffix: ``json``, or ``-saves.svg``
        """
        separator = '' if suffix.startswith('-') else '.'
        return self._files.with_name(self._files.name + separator + suffix)

    def say(self, text: str) -> None:
        """Print a line of progress."""
        say(f'{self.case.suite} {self.case.name}: {text}')

    def keep(self, key: str, measure: collections.abc.Callable) -> typing.Any:
        """Return a sample, measured now or by a run that was interrupted.

        It is written at once, with the load average of the last minute.

        :param measure: returns what JSON can hold
        """
        samples = self.document['samples']
        if key not in samples or self._again and key not in self._fresh:
            self.say(key)
            value = json.loads(json.dumps(measure()))
            samples[key] = {'value': value,
                            'load': round(os.getloadavg()[0], 1)}
            self.write()
        self._fresh.add(key)
        return samples[key]['value']

    def kept(self, key: str) -> typing.Any:
        """Return a sample of an earlier run; None without one."""
        return self.document['samples'].get(key, {}).get('value')

    def rounds(self, ways: dict[str, collections.abc.Callable], count: int,
               ) -> dict[str, dict[str, float]]:
        """Measure each way once, in turns, and this many times again.

        :param ways: functions that return figures by name
        :returns: medians of each way
        """
        found: dict[str, list[dict]] = {name: [] for name in ways}
        for number in range(1, count + 1):
            for name, measure in ways.items():
                found[name].append(self.keep(
                    f'{name}, round {number} of {count}', measure))
        return {name: {field: statistics.median(one[field] for one in every)
                       for field in every[0]}
                for name, every in found.items()}

    def table(self, title: str, head: collections.abc.Sequence[str],
              rows: collections.abc.Iterable[collections.abc.Sequence],
              ) -> None:
        """Add a table to the result."""
        self.tables.append(tables.Table(
            title, tuple(head), [tuple(row) for row in rows]))

    def chart(self, plot: collections.abc.Callable, rows: int = 1,
              columns: int = 1, suffix: str = 'svg') -> None:
        """Draw a chart into a file beside the result.

        :param suffix: of the file, behind the name of the case
        """
        def draw() -> None:
            # The library takes a while, and its memory would count as that
            # of programs that are started later.
            from bench.harness import charts
            charts.draw(self.path(suffix), rows, columns, plot)

        process = multiprocessing.get_context('fork').Process(target=draw)
        process.start()
        process.join()
        if process.exitcode:
            raise errors.BenchError('the chart could not be drawn')

    def finish(self) -> None:
        """Write the tables, and the load that the measurement ended with."""
        self.document['machine'] = machine.describe()
        self.document['tables'] = [
            {'title': table.title, 'head': table.head, 'rows': table.rows}
            for table in self.tables]
        self.write()
        self.path('inc').write_text(
            '\n'.join(table.rst() for table in self.tables))

    def write(self) -> None:
        """Write the result, whole or not at all."""
        part = self.path('part')
        part.write_text(json.dumps(self.document, indent=1, default=str)
                        + '\n')
        part.replace(self.path('json'))
