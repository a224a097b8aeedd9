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
"""What Tempest calls to find the scenarios."""

import pathlib
import typing

from oslo_config import cfg
from tempest.test_discover import plugins

from diffcache_openstack.tempest_plugin import options


class DiffCachePlugin(plugins.TempestPlugin):
    """The entry point."""

    def load_tests(self) -> tuple[str, str]:
        """Return the folders of the tests and of their package."""
        folder = pathlib.Path(__file__).parent
        return str(folder), str(folder.parent.parent)

    def register_opts(self, conf: cfg.ConfigOpts) -> None:
        """Add the options."""
        options.register_opts(conf)

    def get_opt_lists(self) -> list[tuple[str, list]]:
        """Return groups and options."""
        return options.list_opts()

    def get_service_clients(self) -> list[dict[str, typing.Any]]:
        """Return no clients: no other plugin needs them."""
        return []
