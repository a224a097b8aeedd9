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
"""The ways to cache images that benchmarks compare."""

import dataclasses
import os
import pathlib
import sys

from onemachine import errors
from onemachine.services import suite


@dataclasses.dataclass(frozen=True)
class Mode:
    """A way to cache images.

    :ivar title: of its column
    :ivar caching: one of :data:`.suite.KINDS`
    :ivar patches: whether the suite makes patches
    """

    title: str
    caching: str
    patches: bool = False

    @property
    def suite(self) -> bool:
        """Whether the suite runs."""
        return self.caching == suite.DIFFCACHE

    @property
    def stock(self) -> bool:
        """Whether Nova's precache and Glance's own cache are used."""
        return self.caching == suite.GLANCE


MODES = {
    'plain': Mode('Plain Nova', suite.NONE),
    'stock': Mode('Stock caches', suite.GLANCE),
    'templates': Mode('Templates only', suite.DIFFCACHE),
    'diffcache': Mode('DiffCache', suite.DIFFCACHE, patches=True),
}


def enter_environment(state: pathlib.Path) -> None:
    """Run in the Python environment of an OpenStack, with its clients.

    Starts this program again, unless it runs there.

    :param state: its folder, as given to tools/openstack; absolute
    :raises OpenStackError: there is none
    """
    if pathlib.Path(sys.prefix) == state / 'venv':
        return
    python = state / 'venv' / 'bin' / 'python'
    if not python.exists():
        raise errors.OpenStackError(
            f'nothing is in {state}: run tools/openstack up --computes 2')
    os.execv(python, [str(python), *sys.argv])
