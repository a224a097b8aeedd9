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
"""A progress bar on a terminal."""

import io
import time
from types import TracebackType
from typing import TextIO

from cliff import command

_PATIENCE_S = 1.0
_WIDTH = 30
_MB = 1e6
_TINY = 1e-9


class Bar:
    """A progress bar, drawn after the first second of work.

    A context manager and a progress callback at the same time. Draws nothing
    unless its stream is a terminal.
    """

    def __init__(self, label: str, stream: TextIO) -> None:
        self._label = label
        self._stream = stream
        self._begun = self._started = time.monotonic()
        self._drawn = False
        self._pass, self._last = 1, 0

    def __call__(self, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` bytes are processed.

        Fewer than before begin another pass over the data.
        """
        now = time.monotonic()
        if done < self._last:
            self._pass, self._started = self._pass + 1, now
        self._last = done
        elapsed = now - self._started
        if not self._stream.isatty() or now - self._begun < _PATIENCE_S:
            return
        share = min(done / total, 1.0) if total else 0.0
        filled = int(share * _WIDTH)
        self._stream.write(
            f'\r{self._label}{_ordinal(self._pass)}'
            f' [{"#" * filled:<{_WIDTH}}] {share:4.0%}'
            f' {self._speed(done, total, elapsed)}')
        self._stream.flush()
        self._drawn = True

    def _speed(self, done: int, total: int, elapsed: float) -> str:
        return f'{done / max(elapsed, _TINY) / _MB:7.1f} MB/s'

    def __enter__(self) -> 'Bar':
        return self

    def __exit__(self, exc_type: type[BaseException] | None,
                 exc: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._drawn:
            self._stream.write('\r\x1b[K')
            self._stream.flush()


class Steps(Bar):
    """A progress bar of what is counted, and no bytes."""

    def _speed(self, done: int, total: int, elapsed: float) -> str:
        return f'{done} of {total}'


def _ordinal(number: int) -> str:
    return '' if number == 1 else f', pass {number}'


def of(what: command.Command, label: str, kind: type[Bar] = Bar) -> Bar:
    """Return the progress bar of a command; a quiet one draws nothing."""
    quiet = not what.app.options.verbose_level
    return kind(label, io.StringIO() if quiet else what.app.stderr)
