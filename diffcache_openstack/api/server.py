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
"""HTTP server of the API. Workers share the port through SO_REUSEPORT."""

import threading

from oslo_log import log

from diffcache_openstack.api import app
from diffcache_openstack.runtime import http_server
from diffcache_openstack.runtime import service

LOG = log.getLogger(__name__)


class ApiService(service.Service):
    """Serves the API until it is stopped."""

    def start(self) -> None:
        """Listen and serve requests in threads.

        :raises PermanentError: the database cannot be used
        :raises OSError: the address cannot be listened on
        """
        options = self.conf.api
        self._server = http_server.HttpServer(
            (options.bind_host, options.bind_port), app.load(self.conf),
            numthreads=options.threads, request_queue_size=128,
            reuse_port=options.workers > 1)
        self._server.prepare()
        self._thread = threading.Thread(
            target=self._server.serve, name='api', daemon=True)
        self._thread.start()
        LOG.info('API is ready at http://%s:%s', options.bind_host,
                 self._server.bind_addr[1])

    def stop(self, graceful: bool = False) -> None:
        """Complete the current requests, then end."""
        self._server.stop()
        self._thread.join()
        super().stop(graceful)
