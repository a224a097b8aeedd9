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
"""Liveness of hosts, by their heartbeats."""

import collections.abc
import datetime

from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.common import exceptions
from diffcache_openstack.db import engine
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import versioned

LOG = log.getLogger(__name__)


class Liveness:
    """Declares hosts dead that sent no heartbeat for long.

    Missing heartbeats count only while the conductors can receive them, and
    when those in their queue are stored: after an outage of the conductor, of
    the broker or of the database, hosts have the full
    ``[conductor] host_timeout`` again.

    :param caught_up: returns when the heartbeats that were sent before are
        stored; raises ServiceUnavailable if that takes too long
    """

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database,
                 caught_up: collections.abc.Callable[[], None]) -> None:
        self._conf = conf
        self._database = database
        self._caught_up = caught_up
        self._listens_since = versioned.now()

    def check(self) -> tuple[list[str], set[str]]:
        """Declare hosts dead after ``[conductor] host_timeout``.

        :returns: names of hosts, and the sites whose map changed
        :raises oslo_db.exception.DBError: the hosts could not be read
        """
        before = versioned.now() - datetime.timedelta(
            seconds=self._conf.conductor.host_timeout)
        try:
            if not self._database.read(host_rows.any_silent, before) \
                    or before < self._listens_since:
                return [], set()
            self._caught_up()
            return self._database.write(host_rows.expire_hosts, before)
        except exceptions.ServiceUnavailable as error:
            LOG.warning('Declaring no host dead while heartbeats wait to be'
                        ' received: %s', error)
            self._listens_since = versioned.now()
            return [], set()
        except Exception:
            # What hosts reported meanwhile did not get there either.
            self._listens_since = versioned.now()
            raise
