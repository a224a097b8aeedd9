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
"""memcached, where tokens that were verified are remembered."""

from onemachine import layout
from onemachine import place
from onemachine import processes


def address(where: layout.Layout) -> tuple[str, int]:
    """Return the address and port at which it listens."""
    return where.centre, layout.PORTS['memcached']


def ensure(given: place.Place) -> bool:
    """Start it."""
    host, port = address(given.where)
    return given.processes.ensure(processes.Daemon(
        name='memcached', place='centre', user='memcache',
        command=('memcached', '-l', host, '-p', port, '-U', 0, '-m', 64,
                 '-t', 1),
        ready=lambda: processes.listens(host, port)))
