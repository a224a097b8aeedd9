#!/usr/bin/env python3
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
"""Have the Nova or the Glance that is installed load the suite's driver.

usage: load_drivers.py nova|glance

By its own code, from options like those of the administrator guide. There
is no agent: a socket takes its place, which answers nothing.
"""

import pathlib
import socket
import sys
import tempfile

_TEXT = '''\
[DEFAULT]
config_source = diffcache_hook
{options}
state_path = {folder}
image_cache_dir = {folder}/cache
[diffcache_hook]
driver = diffcache
[diffcache]
socket = {folder}/agent.sock
'''


def show(what: str, driver: object) -> None:
    """Print what was loaded.

    :raises RuntimeError: it is not of the suite
    """
    kind = type(driver)
    print(f'{what}: {kind.__module__}.{kind.__qualname__}')
    if not kind.__module__.startswith('diffcache_openstack.'):
        raise RuntimeError(f'{what} has loaded a driver of its own')


def load_nova(path: str) -> None:
    """Load nova-compute's driver."""
    from nova import config
    from nova.virt import driver

    config.parse_args(['nova-compute', '--config-file', path])
    # It ends the process if it cannot.
    show('nova-compute', driver.load_compute_driver(None))


def load_glance(path: str) -> None:
    """Load the driver of Glance's image cache."""
    from glance.common import config
    from glance import image_cache

    config.parse_args(args=['--config-file', path])
    show('glance-api', image_cache.ImageCache().driver)


# Of each program, how its driver is loaded, and what names the driver.
PROGRAMS = {
    'nova': (load_nova, 'compute_driver = diffcache.LibvirtDriver'),
    'glance': (load_glance, 'image_cache_driver = diffcache')}


def main(words: list[str]) -> int:
    """Run the command; return the exit code."""
    if len(words) != 1 or words[0] not in PROGRAMS:
        print('usage: load_drivers.py nova|glance', file=sys.stderr)
        return 2
    load, options = PROGRAMS[words[0]]
    with tempfile.TemporaryDirectory() as name, \
            socket.socket(socket.AF_UNIX) as agent:
        folder = pathlib.Path(name)
        agent.bind(str(folder / 'agent.sock'))
        agent.listen()
        config = folder / 'program.conf'
        config.write_text(_TEXT.format(options=options, folder=folder))
        load(str(config))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
