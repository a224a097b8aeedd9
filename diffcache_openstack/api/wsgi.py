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
"""``application`` for any WSGI server.

It reads the configuration where the services do, or from the files that the
environment variable ``OS_DIFFCACHE_CONFIG_FILES`` names, separated by ``;``,
or from ``diffcache.conf`` in the folder ``OS_DIFFCACHE_CONFIG_DIR``.
"""

import os
import pathlib

from diffcache_openstack.api import app
from diffcache_openstack.common.telemetry import logs
from diffcache_openstack.conf import opts

NAME = 'diffcache-api'


def config_arguments(environ: os._Environ | dict) -> list[str]:
    """Return the command line that corresponds to an environment."""
    files = [path for path in
             environ.get('OS_DIFFCACHE_CONFIG_FILES', '').split(';') if path]
    folder = environ.get('OS_DIFFCACHE_CONFIG_DIR')
    if not files and folder:
        files = [str(pathlib.Path(folder, 'diffcache.conf'))]
    return [word for path in files for word in ('--config-file', path)]


def _load() -> app.WSGI:
    conf = opts.new_config(config_arguments(os.environ))
    logs.setup(conf, NAME)
    return app.load(conf)


application = _load()
