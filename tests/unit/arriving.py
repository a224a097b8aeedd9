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
"""Images that are arriving at a host, for tests."""

import copy

from diffcache_openstack.agent.lazy import lazy_hydrations
from diffcache_openstack.agent.lazy import lazy_servers
from diffcache_openstack.common import exceptions
from diffcache_openstack import objects

CONTENT = 'c' * 64
CHUNK = 256 << 10


def status(content_id=CONTENT, **values):
    """What diffcached says of an image that it serves."""
    plan = {'mode': 'idle', 'rate': None, 'measured_rate': 2.5e6,
            'remaining_bytes': 6 * CHUNK, 'elapsed_s': 10.0,
            'deadline_s': None, 'earliest_s': 40.0, 'kept': None,
            **values.pop('hydration', {})}
    return {'content_id': content_id, 'chunk': CHUNK, 'chunks': 12,
            'data_chunks': 8, 'present': 2, 'complete': False,
            'bytes_fetched': 2 * CHUNK, 'misses': 1, 'stall_ms': 30,
            'sources': [{'url': 'http://hub:8797', 'requests': 2,
                         'bytes': 2 * CHUNK, 'failures': 0}],
            'hydration': plan, **values}


class Daemon:
    """diffcached, of which a test has the state.

    :ivar changes: that were asked for
    :ivar error: raised in place of an answer, if it is set
    """

    def __init__(self, *statuses):
        self.served = {each['content_id']: each for each in statuses}
        self.changes = []
        self.error = None

    def images(self):
        """The status of each image."""
        self._check()
        return copy.deepcopy(list(self.served.values()))

    def image(self, content_id):
        """The status of one."""
        self._check()
        if content_id not in self.served:
            raise exceptions.NotFound('not served')
        return copy.deepcopy(self.served[content_id])

    def change(self, content_id, changed):
        """Change hydration and rate, as diffcached does."""
        self._check()
        self.changes.append(changed)
        plan = self.served[content_id]['hydration']
        if 'rate' in changed:
            plan['rate'] = changed['rate']
        hydrate = changed.get('hydrate', plan['mode'])
        if isinstance(hydrate, dict):
            plan.update(mode='deadline', elapsed_s=0.0, kept=True,
                        deadline_s=hydrate['seconds'], earliest_s=30.0)
        else:
            plan.update(mode=hydrate, deadline_s=None, kept=None)

    def _check(self):
        if self.error is not None:
            raise self.error


class Host:
    """A host where servers boot while their images arrive.

    :param folder: for its files
    :param statuses: of the images
    """

    def __init__(self, folder, *statuses):
        self._path = folder / 'hydrations.json'
        self.daemon = Daemon(*statuses)
        self.servers = lazy_servers.Servers(folder / 'servers.json')
        for each in statuses:
            self.servers.follow(each['content_id'])
        self.restart()

    def restart(self, rate=0):
        """Have the agent start anew, with a rate of the host."""
        self.hydrations = lazy_hydrations.Hydrations(self.daemon, self.servers,
                                                     self._path, rate)

    def boot(self, server_id, content_id=CONTENT, project='p1',
             image_id='t1'):
        """Have a server boot from an image."""
        self.servers.add(content_id,
                         lazy_servers.LazyServer(server_id, project, image_id))

    def only(self):
        """The one hydration that is reported."""
        [found] = self.hydrations.collect()
        return found


def hydration(server_id, **values):
    """What a host reports of a server's image."""
    return objects.Hydration(**{
        'server_id': server_id, 'image_id': 't1', 'content_id': CONTENT,
        'state': 'arriving', 'chunk': CHUNK, 'chunks': 8, 'present': 2,
        'remaining_bytes': 6 * CHUNK, 'bytes_fetched': 2 * CHUNK,
        'misses': 1, 'stall_ms': 30, 'mode': 'idle', 'measured_rate': 2.5e6,
        'sources': [objects.HydrationSource(
            url='http://hub:8797', requests=2, bytes=2 * CHUNK,
            failures=0)], **values})
