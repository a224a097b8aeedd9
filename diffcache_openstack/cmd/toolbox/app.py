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
"""``diffcache``, the offline toolbox: works on files, needs no service.

Commands are entry points of the namespace ``diffcache.toolbox``.
"""

import logging
import sys
from typing import Sequence

from diffcache_openstack.cmd import console


class Toolbox(console.Console):
    """The ``diffcache`` command line."""

    NAME = 'diffcache'
    NAMESPACE = 'diffcache.toolbox'
    DESCRIPTION = ('Work with disk images, patches, cache placement and'
                   ' versions as files. No service is needed.')
    LOG = logging.getLogger(NAME)

    def configure_logging(self) -> None:
        """Keep the libraries' progress off the console."""
        super().configure_logging()
        for library in ('matplotlib', 'oslo', 'oslo_service', 'alembic'):
            logging.getLogger(library).setLevel(logging.WARNING)
        # What these log as an error, they raise as well.
        for library in ('stevedore', 'glance_store'):
            logging.getLogger(library).setLevel(logging.CRITICAL)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the toolbox; return the process's exit code."""
    return Toolbox().run(list(sys.argv[1:] if argv is None else argv))
