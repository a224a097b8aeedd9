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
"""Print the version of this package, or of a wheel, as Debian writes it.

Usage: version.py [WHEEL]

A Python that has the package or its checkout, and pbr, runs this.
"""

import pathlib
import sys

from pbr import version


def read(wheel: pathlib.Path) -> version.SemanticVersion:
    """Return the version that is in a wheel's name."""
    return version.SemanticVersion.from_pip_string(wheel.name.split('-')[1])


if len(sys.argv) > 1:
    FOUND = read(pathlib.Path(sys.argv[1]))
else:
    FOUND = version.VersionInfo('diffcache-openstack').semantic_version()
print(FOUND.debian_string())
