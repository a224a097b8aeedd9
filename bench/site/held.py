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
"""The case of images that a host holds: from the socket to the file."""

import os
import pathlib
import uuid

from bench.harness import processes
from bench.harness import runs
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.embedded import sites

# A host that flushes what it delivers, as by default, and one that does not.
SYNCED, UNSYNCED = 'synced', 'unsynced'
_FAST = 1e5


def held(run: runs.Run) -> None:
    """Time requests for images that are held, beside cp."""
    rows = []
    for size in run.options.sizes:
        image = run.work / f'{size}.raw'
        processes.write_random(image, size * 10**6, size)
        found = _measure(run, image, size)
        synced, unsynced = found['held, synced'], found['held']
        rows += [(f'{size} MB', way, f'{1e3 * each["seconds"]:.1f}',
                  f'{1e3 * each["cpu"]:.1f}') for way, each in found.items()]
        rows.append((f'{size} MB', 'the sync alone', '{:.1f}'.format(
            1e3 * (synced['seconds'] - unsynced['seconds'])), '-'))
        image.unlink()
    run.table('From a request at the socket to the published file', (
        'Data', 'Way', 'ms', 'CPU, ms'), rows)


def _measure(run: runs.Run, image: pathlib.Path, size: int
             ) -> dict[str, dict[str, float]]:
    directory = run.work / 'site'
    outputs = run.work / 'instances'
    outputs.mkdir(exist_ok=True)
    site = sites.Site(
        directory, [sites.HostSpec(name, 2 * size * 10**6)
                    for name in (SYNCED, UNSYNCED)],
        sites.LinkSpec(_FAST, _FAST, _FAST), directory / 'repository')
    clients = {}
    for name, agent in site.hosts.items():
        socket = str(directory / f'{name}.sock')
        agent.conf.set_override('socket', socket, 'agent')
        agent.conf.set_override('sync_outputs', name == SYNCED, 'agent')
        agent.conf.set_override('output_directories', [str(outputs)], 'agent')
        clients[name] = local_client.LocalClient(socket, 600)
    image_id = str(uuid.uuid4())

    def request(name: str) -> dict[str, float]:
        output = outputs / name
        output.unlink(missing_ok=True)
        with processes.spending() as spent:
            clients[name].content(image_id, str(output))
        return {'seconds': spent.wall_s, 'cpu': spent.cpu_s}

    def copy(how: str) -> dict[str, float]:
        output = outputs / 'copy'
        output.unlink(missing_ok=True)
        spent = processes.measured(
            ('cp', f'--reflink={how}', '--sparse=auto', image, output))
        return {'seconds': spent.wall_s, 'cpu': spent.cpu_s}

    with site:
        site.register(image, image_id, 'image')
        site.wait_catalogue(0)
        for name in clients:
            request(name)
        # What was just written is still on its way to the disk.
        os.sync()
        found = run.rounds({f'{size} MB: {way}': measure for way, measure in (
            ('held, synced', lambda: request(SYNCED)),
            ('held', lambda: request(UNSYNCED)),
            ('cp --reflink=auto', lambda: copy('auto')),
            ('cp --reflink=never', lambda: copy('never')))},
            run.options.rounds)
    return {way.partition(': ')[2]: each for way, each in found.items()}
