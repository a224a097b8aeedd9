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
"""Namespaces, bridges and the shaped link.

Three networks: *management* carries messages between services, *lan*
is the site's own, and *wan* is the thin link between the centre and the
site's router, over which images come. Traffic on the WAN is shaped in both
directions with a token bucket, and the interface counts its bytes.
"""

import pathlib

from onemachine import place
from onemachine import shell

# A full queue holds this many seconds of traffic.
_QUEUE_SECONDS = 0.4
_BURST = 32 << 10


class Network:
    """The networks of one OpenStack."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where
        self._bridge = f'{self._where.prefix}-mgmt'

    def ensure(self) -> bool:
        """Make what is missing of the centre and the site's router."""
        where = self._where
        made = self._ensure_bridge()
        made |= self._ensure_place('centre', where.centre)
        made |= self._ensure_place('site', where.site)
        made |= self._ensure_wan()
        return made

    def ensure_host(self, host: str) -> bool:
        """Make what is missing of a compute host's network."""
        where = self._where
        made = self._ensure_place(host, where.management(host))
        name = where.namespace(host)
        if not self._has_link(host, 'lan'):
            port = f'lan{where.host_number(host)}'
            self._ip('link', 'add', 'lan', 'netns', name, 'type', 'veth',
                     'peer', 'name', port, 'netns', where.namespace('site'))
            self._in('site', 'link', 'set', port, 'master', 'lan', 'up')
            self._address(host, 'lan', where.lan(host))
            self._in(host, 'route', 'add', f'{where.network("wan")}.0/24',
                     'via', where.lan_site)
            made = True
        return made

    def _ensure_bridge(self) -> bool:
        if shell.succeeds('ip', 'link', 'show', self._bridge):
            return False
        self._ip('link', 'add', self._bridge, 'type', 'bridge')
        self._ip('addr', 'add', f'{self._where.machine}/24', 'dev',
                 self._bridge)
        self._ip('link', 'set', self._bridge, 'up')
        return True

    def _ensure_place(self, which: str, address: str) -> bool:
        """Return a namespace with an interface in the management network."""
        name = self._where.namespace(which)
        made = False
        if not pathlib.Path('/run/netns', name).exists():
            self._ip('netns', 'add', name)
            self._in(which, 'link', 'set', 'lo', 'up')
            made = True
        if not self._has_link(which, 'mgmt'):
            port = self._port(which)
            self._ip('link', 'add', port, 'type', 'veth', 'peer', 'name',
                     'mgmt', 'netns', name)
            self._ip('link', 'set', port, 'master', self._bridge, 'up')
            self._address(which, 'mgmt', address)
            made = True
        return made

    def _port(self, which: str) -> str:
        """Name of a place's port in the bridge: at most 15 characters."""
        return f'{self._where.prefix}-{which.replace("compute-", "c")}'

    def _ensure_wan(self) -> bool:
        where = self._where
        if self._has_link('centre', 'wan'):
            return False
        self._ip('link', 'add', 'wan', 'netns', where.namespace('centre'),
                 'type', 'veth', 'peer', 'name', 'wan', 'netns',
                 where.namespace('site'))
        self._address('centre', 'wan', where.wan_centre)
        self._address('site', 'wan', where.wan_site)
        self._in('site', 'link', 'add', 'lan', 'type', 'bridge')
        self._address('site', 'lan', where.lan_site)
        shell.run('ip', 'netns', 'exec', where.namespace('site'),
                  'sysctl', '-q', '-w', 'net.ipv4.ip_forward=1')
        self._in('centre', 'route', 'add', f'{where.network("lan")}.0/24',
                 'via', where.wan_site)
        return True

    def shape(self, megabits: float) -> None:
        """Let the WAN carry this many Mbit/s each way; 0 is no limit."""
        for which in ('centre', 'site'):
            prefix = ['ip', 'netns', 'exec', self._where.namespace(which),
                      'tc', 'qdisc']
            if shell.succeeds(*prefix, 'replace', 'dev', 'wan', 'root',
                              'pfifo_fast'):
                shell.succeeds(*prefix, 'del', 'dev', 'wan', 'root')
            if megabits:
                rate = round(megabits * 1e6)
                limit = _BURST + round(rate / 8 * _QUEUE_SECONDS)
                shell.run(*prefix, 'replace', 'dev', 'wan', 'root', 'tbf',
                          'rate', f'{rate}bit', 'burst', _BURST,
                          'limit', limit)

    def wan_bytes(self) -> dict[str, int]:
        """Return bytes over the WAN so far, with headers, per direction."""
        return self._counted('wan')

    def _counted(self, interface: str) -> dict[str, int]:
        folder = f'/sys/class/net/{interface}/statistics'
        # A namespace sees its own interfaces in a /sys mounted inside it,
        # which "ip netns exec" does.
        text = shell.run('ip', 'netns', 'exec',
                         self._where.namespace('centre'), 'cat',
                         f'{folder}/tx_bytes', f'{folder}/rx_bytes')
        sent, received = (int(word) for word in text.split())
        return {'to_site': sent, 'to_centre': received}

    def remove(self) -> None:
        """Remove namespaces and bridge; their interfaces go with them."""
        listed = shell.run('ip', 'netns', 'list').splitlines()
        for line in listed:
            name = line.split()[0] if line.split() else ''
            if name.startswith(f'{self._where.prefix}-'):
                self._ip('netns', 'del', name)
        if shell.succeeds('ip', 'link', 'show', self._bridge):
            self._ip('link', 'del', self._bridge)

    def _has_link(self, which: str, name: str) -> bool:
        return shell.succeeds('ip', '-n', self._where.namespace(which),
                              'link', 'show', name)

    def _address(self, which: str, interface: str, address: str) -> None:
        self._in(which, 'addr', 'add', f'{address}/24', 'dev', interface)
        self._in(which, 'link', 'set', interface, 'up')

    def _in(self, which: str, *words: str) -> None:
        self._ip('-n', self._where.namespace(which), *words)

    @staticmethod
    def _ip(*words: str) -> None:
        shell.run('ip', *words)
