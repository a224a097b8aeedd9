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
"""A progress bar for work that the service does."""

import typing

from diffcache_openstack.common import units

_WIDTH = 30


class Bar:
    """A bar on a terminal; on anything else it draws nothing."""

    def __init__(self, label: str, stream: typing.TextIO) -> None:
        self._label = label
        self._stream = stream
        self._drawn = False

    def job(self, job: typing.Any) -> None:
        """Show the progress of a precache job."""
        counts = job.progress
        text = f'{counts["ready"]} of {counts["targets"]} targets'
        if counts['failed']:
            text += f', {counts["failed"]} failed'
        done, total = counts['bytes_done'], counts['bytes']
        if total:
            text += (f', {units.format_size(done)} of'
                     f' {units.format_size(total)}')
        self._draw(done / total if total else 0.0, text)

    def show(self, done: int, total: int, what: str) -> None:
        """Show that ``done`` of ``total`` are done."""
        self._draw(done / total if total else 0.0,
                   f'{done} of {total} {what}')

    def _draw(self, share, text):
        if not self._stream.isatty():
            return
        filled = int(share * _WIDTH)
        self._stream.write(f'\r{self._label} [{"#" * filled:<{_WIDTH}}]'
                           f' {text} \x1b[K')
        self._stream.flush()
        self._drawn = True

    def __enter__(self) -> 'Bar':
        return self

    def __exit__(self, *_error: typing.Any) -> None:
        if self._drawn:
            self._stream.write('\r\x1b[K')
            self._stream.flush()
