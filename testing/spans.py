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
"""Spans of traces, as they cross a message broker."""

import queue
import typing

import oslo_messaging

# What osprofiler's driver for messages sends to.
TOPIC = 'profiler'


class Want(typing.NamedTuple):
    """A span to wait for.

    :ivar words: part of what it says of itself
    """

    name: str
    host: str
    words: str = ''


class Collector:
    """Takes spans from the broker, as a context manager.

    :param seconds: how long to wait for the next one
    """

    def __init__(self, transport: typing.Any, seconds: float) -> None:
        self._seconds = seconds
        self._spans: dict[str, dict[str, typing.Any]] = {}
        self._arrived: queue.SimpleQueue = queue.SimpleQueue()
        self._listener = oslo_messaging.get_notification_listener(
            transport, [oslo_messaging.Target(topic=TOPIC)], [self],
            executor='threading')

    def __enter__(self) -> typing.Self:
        self._listener.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.stop()
        self._listener.wait()

    def info(self, _ctxt: typing.Any, _publisher: str, _event: str,
             payload: dict[str, typing.Any], _metadata: typing.Any) -> None:
        """Take the start or end of a span."""
        self._arrived.put(payload)

    def wait_for(self, *wanted: Want) -> list[dict[str, typing.Any]]:
        """Wait until spans have ended; returns all that were taken."""
        while not all(any(is_of(span, want) for span in self.ended())
                      for want in wanted):
            self._take(self._arrived.get(timeout=self._seconds))
        return self.ended()

    def ended(self) -> list[dict[str, typing.Any]]:
        """Return the spans whose start and end were taken."""
        return [span for span in self._spans.values()
                if 'start' in span and 'stop' in span]

    def _take(self, payload: dict[str, typing.Any]) -> None:
        name, _, event = payload['name'].rpartition('-')
        span = self._spans.setdefault(payload['trace_id'], {
            'name': name, 'service': payload['service'],
            'project': payload['project'],
            'base': payload['base_id'], 'parent': payload['parent_id'],
            'id': payload['trace_id'], 'host': payload['info']['host']})
        # Middleware of other projects describes requests in other fields.
        span[event] = payload['info'].get('function') or {}
        span[f'{event}ed'] = payload['timestamp']


def is_of(span: dict[str, typing.Any], want: Want) -> bool:
    """Check whether a span that has ended is one that is waited for."""
    said = (span['start'].get('args', '') + span['stop'].get('result', ''))
    return ((span['name'], span['host']) == (want.name, want.host)
            and want.words in said)


def path(spans: list[dict[str, typing.Any]], span: dict[str, typing.Any]
         ) -> list[dict[str, typing.Any]]:
    """Return a span after those above it, from the first that was taken."""
    by_id = {each['id']: each for each in spans}
    found = [span]
    while found[0]['parent'] in by_id:
        found.insert(0, by_id[found[0]['parent']])
    return found
