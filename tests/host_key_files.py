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
"""Keys of the hosts of a deployment, for tests."""

import pathlib

from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import signatures

# Of hosts, where a test does not say another.
SITE = 'edge'


class Keys:
    """An authority, and the keys that it issued.

    :param directory: of the files, which must not exist
    """

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.pair = (directory / 'authority.key', directory / 'authority.pem')
        host_keys.create_authority(*self.pair, 30)

    def path(self, role: str, host: str, site: str = SITE) -> pathlib.Path:
        """Return the file with the key of a host."""
        path = self.directory / f'{role}-{host}-{site}'
        if not path.exists():
            self.create(role, host, path, site)
        return path

    def create(self, role: str, host: str, path: pathlib.Path,
               site: str = SITE) -> None:
        """Write the key of a host to a file."""
        host_keys.create_host_key(
            self.pair, host_keys.Subject(
                host, role, None if role in host_keys.WITHOUT_SITE else site),
            path, 30)

    def key(self, role: str, host: str) -> host_keys.HostKey:
        """Return the key of a host."""
        return host_keys.HostKey(self.path(role, host))

    def authority(self) -> host_keys.Authority:
        """Return what verifies signatures."""
        return host_keys.Authority(self.pair[1])

    def security(self, role: str, host: str, required: bool = True
                 ) -> signatures.Security:
        """Return how a service of a host signs and verifies."""
        return signatures.Security(self.key(role, host), self.authority(),
                                   required)

    def options(self, role: str, host: str, site: str = SITE
                ) -> dict[str, object]:
        """Return the options of the group ``[messaging]``."""
        return {'key_file': self.path(role, host, site),
                'authority_file': self.pair[1]}
