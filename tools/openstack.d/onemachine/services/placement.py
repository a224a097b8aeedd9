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
"""Placement."""

from onemachine import layout
from onemachine import place
from onemachine.services import common
from onemachine import shell


class Placement:
    """The resource inventory of the centre."""

    def __init__(self, given: place.Place) -> None:
        self._given = given
        self._where = given.where

    def configure(self) -> None:
        """Write the configuration."""
        common.write(
            self._where, 'placement/placement.conf',
            common.logging(self._where),
            common.database(self._where, 'placement', 'placement_database'),
            common.authtoken(self._where, 'placement'),
            {'api': {'auth_strategy': 'keystone'}})

    def sync(self) -> None:
        """Bring the schema up to date."""
        shell.run(
            *self._given.processes.enter('centre'),
            self._where.program('placement-manage'), '--config-file',
            self._where.etc / 'placement/placement.conf', 'db', 'sync',
            log=self._where.folder('log') / 'placement-manage.log')

    def ensure(self) -> bool:
        """Start the service."""
        return self._given.processes.ensure(self._given.wsgi(
            'placement', 'placement.wsgi.api',
            (self._where.centre, layout.PORTS['placement']),
            (self._where.etc / 'placement/placement.conf',),
            OS_PLACEMENT_CONFIG_DIR=str(self._where.etc / 'placement')))
