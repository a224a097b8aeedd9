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
"""Listening to notifications of other services, on oslo.messaging."""

import collections.abc
import threading
import time

from oslo_config import cfg
from oslo_log import log
import oslo_messaging

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common import threads

LOG = log.getLogger(__name__)

RETRY_SECONDS = 1.0

Handler = collections.abc.Callable[[dict], None]


class _Endpoint:
    """Gives notifications of some types to a function."""

    def __init__(self, event_type: str, handler: Handler) -> None:
        self.filter_rule = oslo_messaging.NotificationFilter(
            event_type=event_type)
        self._handler = handler

    def info(self, ctxt: dict, publisher_id: str, event_type: str,
             payload: dict | str, metadata: dict) -> str | None:
        """Process one notification.

        What our own code or another's broker could do later is tried again;
        what it makes no sense of is logged and left.
        """
        if not isinstance(payload, dict):
            # Glance's words about an upload that failed.
            LOG.debug('Ignoring %s from %s: %s', event_type, publisher_id,
                      payload)
            return oslo_messaging.NotificationResult.HANDLED
        try:
            self._handler({'event_type': event_type, 'payload': payload,
                           'publisher_id': publisher_id,
                           'message_id': metadata.get('message_id'),
                           'timestamp': metadata.get('timestamp')})
        except exceptions.RetryableError as error:
            LOG.warning('Will process %s from %s again: %s', event_type,
                        publisher_id, error)
            # It comes back at once.
            time.sleep(RETRY_SECONDS)
            return oslo_messaging.NotificationResult.REQUEUE
        except Exception:
            LOG.exception('Could not process %s from %s', event_type,
                          publisher_id)
        return oslo_messaging.NotificationResult.HANDLED

    warn = error = info


class Listener:
    """Listens until it is stopped, also if the broker is not there yet.

    :param exchanges: ``[DEFAULT] control_exchange`` of the senders
    :param handlers: by regular expression of event types
    :param pool: listeners of one pool share the messages; each pool gets all
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 exchanges: collections.abc.Iterable[str],
                 handlers: dict[str, Handler],
                 pool: str | None = None) -> None:
        options = conf.notifications
        url = options.transport_url or conf.transport_url
        messaging.place_locks(conf)
        try:
            self._transport = oslo_messaging.get_notification_transport(
                conf, url=url)
        except (oslo_messaging.DriverLoadFailure,
                oslo_messaging.InvalidTransportURL, ValueError) as error:
            raise exceptions.InvalidInput(
                f'Option [notifications] transport_url cannot be used:'
                f' {error}; give it as'
                f' rabbit://USER:PASSWORD@HOST:5672/.') from error
        targets = [oslo_messaging.Target(topic=topic, exchange=exchange)
                   for exchange in exchanges for topic in options.topics]
        self._server = oslo_messaging.get_notification_listener(
            self._transport, targets,
            [_Endpoint(*item) for item in handlers.items()],
            executor='threading', allow_requeue=True, pool=pool)
        self._reach = messaging.Reach(messaging.broker_addresses(conf, url))
        self._started = threading.Event()
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start in a thread: the broker may be down for hours."""
        threading.Thread(target=self._start, daemon=True,
                         name='notifications').start()

    def stop(self) -> None:
        """End, whether or not the broker answers."""
        self._stopping.set()
        threads.end('notifications-stop', self._stop)

    def _stop(self) -> None:
        if self._started.is_set():
            self._server.stop()
            self._server.wait()
        self._transport.cleanup()

    def _start(self):
        self._reach.warn_if_absent()
        self._server.start()
        self._started.set()
        if self._stopping.is_set():
            self._server.stop()
