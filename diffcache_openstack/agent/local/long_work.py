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
"""Requests of the local sockets that take long, and show their progress."""

import logging
import queue
import threading
import typing

from werkzeug import wrappers

from diffcache_openstack.agent.images import contents
from diffcache_openstack.agent.local import local_server
from diffcache_openstack.agent.local import messages
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import tracing

LOG = logging.getLogger(__name__)

MOST_WORK = 96


class LongWork:
    """Runs work in threads, a limited number at a time."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(MOST_WORK)

    def stream(self, request: wrappers.Request, name: str,
               watch: contents.Watch, work: typing.Callable[[], dict]
               ) -> wrappers.Response:
        """Run work in a thread, and send its progress meanwhile.

        :raises ServiceUnavailable: all places are taken
        """
        return wrappers.Response(self.lines(request, name, watch, work),
                                 mimetype=messages.JSON_LINES)

    def lines(self, request: wrappers.Request, name: str,
              watch: contents.Watch, work: typing.Callable[[], dict]
              ) -> messages.Lines:
        """Start work in a thread; return its progress as lines to send.

        :raises ServiceUnavailable: all places are taken
        """
        ended: queue.SimpleQueue = queue.SimpleQueue()
        context, origin = messages.context_of(request), tracing.current()

        def run() -> None:
            context.update_store()
            try:
                with tracing.continued(origin):
                    ended.put(work())
            except exceptions.DiffCacheError as error:
                ended.put(messages.error_of(error))
            except Exception as error:
                LOG.exception('%s', name)
                ended.put(messages.error_of(messages.internal(error)))
            finally:
                self._places.release()

        # Work whose client has gone keeps its thread until it ends.
        take_place(self._places, 'requests that take long')
        try:
            threading.Thread(target=run, daemon=True, name=name).start()
        except RuntimeError:
            self._places.release()
            raise
        connection = request.environ[local_server.REQUEST].conn.socket
        return messages.lines(watch, ended, connection)


def take_place(places: threading.BoundedSemaphore, what: str) -> None:
    """Take one of a limited number of places.

    :raises ServiceUnavailable: all are taken
    """
    if not places.acquire(blocking=False):
        raise exceptions.ServiceUnavailable(
            f'This agent serves as many {what} as it may; try again later.')
