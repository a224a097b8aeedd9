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
"""Tables of figures, for a terminal and for a page of the documentation."""

import collections.abc
import dataclasses
import typing


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of cells, the first of which name the rows."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple]

    def _lines(self, cell: collections.abc.Callable[[typing.Any], str],
               ) -> tuple[list[list[str]], list[int]]:
        lines = [list(self.head), *[[cell(each) for each in row]
                                    for row in self.rows]]
        return lines, [max(map(len, column)) for column in zip(*lines)]

    def text(self) -> str:
        """Return the table for a terminal, numbers to the right."""
        lines, widths = self._lines(str)
        return '\n'.join([self.title, *(''.join(
            ('' if column == 0 else '  ')
            + (cell.rjust(width) if _is_number(cell, line) else
               cell.ljust(width))
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip() for line in lines), ''])

    def rst(self) -> str:
        """Return the table in reStructuredText."""
        # An empty first cell would belong to the row above.
        lines, widths = self._lines(lambda cell: str(cell) or r'\-')
        rule = ' '.join('=' * width for width in widths)
        body = [' '.join(cell.ljust(width) for cell, width in zip(
            line, widths)).rstrip() for line in lines]
        return '\n'.join([f'.. table:: {self.title}', '', *(
            f'   {line}' for line in (rule, body[0], rule, *body[1:], rule)),
            ''])


def _is_number(cell: str, line: list[str]) -> bool:
    return cell is not line[0] and cell[:1] in '0123456789+-'


def percent(ratio: float | None) -> str:
    """Return a ratio in percent, or a dash if there is none."""
    return '-' if ratio is None else f'{100 * ratio:.1f}'


def share(part: float, whole: float) -> str:
    """Return a part of a whole in percent, with its sign."""
    return f'{100 * part / whole:.1f} %' if whole else '-'


def megabytes(count: float) -> str:
    """Return bytes in MB."""
    return f'{count / 1e6:.2f}'
