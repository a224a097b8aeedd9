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
"""HTTP server for WSGI applications, with cheroot.

Cheroot is CherryPy's HTTP server: threads, HTTP/1.1 with kept connections,
and a maintained project of its own.
"""

from cheroot import wsgi
from oslo_log import log

LOG = log.getLogger(__name__)


class HttpServer(wsgi.Server):
    """Cheroot's server; it writes its messages to the service's log."""

    def error_log(self, msg: str = '', level: int = 20,
                  traceback: bool = False) -> None:
        """Log one message."""
        LOG.log(level, '%s', msg, exc_info=traceback)
