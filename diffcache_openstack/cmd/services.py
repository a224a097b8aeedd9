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
"""What the services' console scripts have in common."""

import collections.abc
import sys

from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import logs
from diffcache_openstack.common import service
from diffcache_openstack.conf import opts

LOG = log.getLogger(__name__)


def run(name: str,
        create: collections.abc.Callable[[cfg.ConfigOpts], service.Service],
        workers: collections.abc.Callable[[cfg.ConfigOpts], int],
        argv: collections.abc.Sequence[str]) -> int:
    """Read the configuration, then run a service until it is told to stop.

    :param name: of the console script
    :param create: makes the service from its configuration
    :param workers: says how many processes shall run it
    :param argv: the command line without the program's name
    :returns: the exit code: 0 after a stop that was asked for, 1 if the
        service cannot work; argparse exits with 2 on wrong usage
    """
    try:
        conf = opts.new_config(argv)
        logs.setup(conf, name)
    except cfg.Error as error:
        print(f'{name}: error: {error}', file=sys.stderr)
        return 1
    try:
        return service.run(conf, create(conf), workers(conf))
    except exceptions.DiffCacheError as error:
        LOG.critical('%s', error)
        # Also where the log does not go to standard error.
        print(f'{name}: error: {error}', file=sys.stderr)
        return 1
