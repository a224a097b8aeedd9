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
"""What every service module is given: the layout and the processes."""

import dataclasses
import pathlib

from onemachine import layout
from onemachine import processes
from onemachine import steps


_EVENTLET_PROCESSES = 3


@dataclasses.dataclass(frozen=True)
class Place:
    """One OpenStack and the means to work on it."""

    where: layout.Layout
    processes: processes.Processes
    progress: steps.Progress

    def wsgi(self, name: str, module: str, address: tuple[str, int],
             inputs: tuple[pathlib.Path, ...], place: str = 'centre',
             threads: int = 8, venv: pathlib.Path | None = None,
             **environment: str) -> processes.Daemon:
        """Return a WSGI application under uWSGI, on all local addresses.

        Without "Connection: close" uWSGI resets the connection when a body
        was not read to its end. Images are uploaded in chunks, slowly.

        :param address: where this machine reaches it
        :param inputs: its configuration files
        :param threads: that answer requests; with one, as eventlet needs it,
            there are processes instead
        :param venv: its Python environment, if it is not OpenStack's
        """
        folder = str(self.where.run / 'wsgi')
        venv = venv or self.where.venv
        workers = _EVENTLET_PROCESSES if threads == 1 else 1
        return processes.Daemon(
            name=name, place=place, inputs=inputs,
            command=(
                venv / 'bin/uwsgi', '--need-app', '--die-on-term',
                '--master', '--single-interpreter', '--lazy-apps',
                '--processes', str(workers), '--threads', str(threads),
                '--enable-threads',
                '--http-socket', f'0.0.0.0:{address[1]}',
                '--module', f'{module}:application',
                '--add-header', 'Connection: close',
                '--buffer-size', '65535', '--socket-timeout', '600',
                '--chunked-input-limit', str(64 << 20),
                '--chunked-input-timeout', '600',
                '--log-master', '--disable-logging',
            ),
            environment={'PYTHONPATH': folder, 'HOME': str(self.where.state),
                         'VIRTUAL_ENV': str(venv), **environment},
            ready=lambda: processes.listens(*address))
