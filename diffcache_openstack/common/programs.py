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
"""The native programs that are installed with this package."""

import os
import shutil
import sys

from diffcache_openstack.common import exceptions


class ProgramNotFound(exceptions.InvalidInput):
    """A program of this package is not installed."""


def find(name: str) -> str:
    """Return the path of a program: beside this Python, or in PATH.

    :raises ProgramNotFound: it is at neither place
    """
    beside = os.path.join(os.path.dirname(sys.executable), name)
    found = shutil.which(beside) or shutil.which(name)
    if found is None:
        raise ProgramNotFound(
            f'{name} is neither at {beside} nor in PATH: install the package'
            ' diffcache-openstack again, with its native parts')
    return found
