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

import datetime

from oslo_config import cfg

from diffcache_openstack.db import engine
from diffcache_openstack.db.sites import host_rows
from diffcache_openstack.objects import versioned

# Before any host's last heartbeat.
_NEVER = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Liveness:
    """Declares hosts dead that sent no heartbeat for long.

    Missing heartbeats count only while the conductor can receive them: after
    an outage of the conductor or of the database, hosts have the full
    ``[conductor] host_timeout`` again.
    """

    def __init__(self, conf: cfg.ConfigOpts, database: engine.Database):
        self._conf = conf
        self._database = database
        self._listens_since = versioned.now()

    def check(self) -> tuple[list[str], set[str]]:
        """Declare hosts dead after ``[conductor] host_timeout``.

        :returns: names of hosts, and the sites whose map changed
        :raises oslo_db.exception.DBError: the hosts could not be read
        """
        before = versioned.now() - datetime.timedelta(
            seconds=self._conf.conductor.host_timeout)
        try:
            return self._database.write(
                host_rows.expire_hosts,
                before if before >= self._listens_since else _NEVER)
        except Exception:
            # What hosts reported meanwhile did not get there either.
            self._listens_since = versioned.now()
            raise
