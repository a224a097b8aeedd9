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
"""Unified limits of Keystone, through oslo.limit."""

import collections.abc
import threading
import typing

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions as sdk_exceptions
from oslo_config import cfg
from oslo_limit import exception as limit_exceptions
from oslo_limit import limit
import requests

from diffcache_openstack.cloud import quota_errors
from diffcache_openstack.common import exceptions
from diffcache_openstack.conf import groups
from diffcache_openstack.conf import quota

_ERRORS = (ksa_exceptions.ClientException, sdk_exceptions.SDKException,
           limit_exceptions.SessionInitError, requests.RequestException,
           ValueError)


class KeystoneLimits:
    """Limits of projects, as Keystone has them at the moment.

    oslo.limit reads the configuration of its module, which this makes that of
    this service.

    :param usage: returns how much a project uses
    """

    def __init__(self, conf: cfg.ConfigOpts, usage: quota_errors.Usage
                 ) -> None:
        groups.register_access(conf, [quota.LIMIT_GROUP.name])
        self._conf = conf
        self._usage = usage
        self._lock = threading.Lock()

    def of_project(self, project_id: str,
                   names: collections.abc.Collection[str]) -> dict[str, int]:
        """Return the limits of a project by resource.

        A resource without a registered limit has the limit 0.

        :raises ServiceUnavailable: Keystone does not answer, or the options of
            [oslo_limit] are wrong
        """
        return dict.fromkeys(names, 0) | self._call(
            lambda enforcer: dict(enforcer.get_project_limits(
                project_id, list(names))))

    def enforce(self, project_id: str, deltas: dict[str, int]) -> None:
        """Refuse what exceeds a limit.

        :raises QuotaExceeded: it names the resource, its limit and its use
        :raises ServiceUnavailable: Keystone does not answer
        """
        try:
            self._call(lambda enforcer: enforcer.enforce(project_id, deltas))
        except limit_exceptions.ProjectOverLimit as error:
            info = error.over_limit_info_list[0]
            raise quota_errors.exceeded(
                project_id, info.resource_name, info.limit,
                info.current_usage) from error

    def _call(self, function: typing.Callable[[limit.Enforcer], typing.Any]
              ) -> typing.Any:
        # One at a time: the connection of oslo.limit is a global one.
        with self._lock:
            limit.CONF = self._conf
            try:
                # Without a cache: a new limit is in force at once.
                return function(limit.Enforcer(self._usage, cache=False))
            except _ERRORS as error:
                raise exceptions.ServiceUnavailable(
                    f'Could not read the limits of Keystone: {error}; check'
                    f' Keystone, and the options of [oslo_limit].') from error
