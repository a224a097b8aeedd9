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
"""Reaching other services, as a group of options says."""

import threading
import typing

from keystoneauth1 import adapter as adapters
from keystoneauth1 import exceptions as ksa_exceptions
from keystoneauth1 import loading
from keystoneauth1 import session as sessions
from oslo_config import cfg

from diffcache_openstack.common import exceptions


def auth(conf: cfg.ConfigOpts, group: str) -> typing.Any:
    """The authentication plugin that a group names; asks nobody yet.

    :raises InvalidInput: the group's options do not suffice
    """
    try:
        plugin = loading.load_auth_from_conf_options(conf, group)
    except (ksa_exceptions.ClientException, cfg.Error) as error:
        raise exceptions.InvalidInput(
            f'[{group}]: {error}; the group needs all that its auth_type'
            f' asks for.') from error
    if plugin is None:
        raise exceptions.InvalidInput(
            f'[{group}] names no auth_type; set it to password, with'
            f' auth_url, username, password, project_name and the domains.')
    return plugin


def session(conf: cfg.ConfigOpts, group: str) -> sessions.Session:
    """A session with the rights that a group names; asks nobody yet.

    :raises InvalidInput: the group's options do not suffice
    """
    plugin = auth(conf, group)
    try:
        return loading.load_session_from_conf_options(conf, group,
                                                      auth=plugin)
    except cfg.Error as error:
        raise exceptions.InvalidInput(
            f'[{group}]: {error}; correct that option.') from error


class Service:
    """The service that a group of options is about; connected when needed."""

    def __init__(self, conf: cfg.ConfigOpts, group: str) -> None:
        self._conf = conf
        self._group = group
        self._lock = threading.Lock()
        self._adapter: adapters.Adapter | None = None

    def adapter(self) -> adapters.Adapter:
        """What sends requests to it.

        :raises InvalidInput: the group's options do not suffice
        """
        with self._lock:
            if self._adapter is None:
                connected = session(self._conf, self._group)
                self._adapter = loading.load_adapter_from_conf_options(
                    self._conf, self._group, session=connected,
                    auth=connected.auth)
            return self._adapter
