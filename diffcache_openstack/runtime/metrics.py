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
"""Metrics and health of a process over HTTP.

The text of metrics is that of Prometheus, by its own client library, which
any collector of the field reads.
"""

import collections.abc
import json
import threading
import typing

from oslo_log import log
from oslo_utils import netutils
import prometheus_client
from prometheus_client import metrics_core
from prometheus_client import registry as registries

from diffcache_openstack.common import exceptions
from diffcache_openstack.runtime import http_server

LOG = log.getLogger(__name__)

# Each group of values is scraped by one or two collectors, every some seconds.
_THREADS = 2

# Start of all names.
PREFIX = 'diffcache'
#: Returns why a process cannot do its work; nothing if it can.
Problems = collections.abc.Callable[[], collections.abc.Sequence[str]]
StartResponse = collections.abc.Callable[..., typing.Any]
_Family = (metrics_core.GaugeMetricFamily | metrics_core.CounterMetricFamily)


class MetricsServer:
    """Serves ``/metrics``, ``/live`` and ``/ready`` until it is stopped.

    ``/live`` answers 200 as long as the process answers at all. ``/ready`` is
    503 while there are problems, which it lists.

    :param address: to listen on, ADDRESS:PORT
    :param registry: what has the metrics
    :param problems: called for each probe of ``/ready``
    :param shared: whether other processes listen on the same port, too
    """

    def __init__(self, address: str,
                 registry: prometheus_client.CollectorRegistry,
                 problems: Problems, shared: bool = False) -> None:
        self._address = address
        self._shared = shared
        self._problems = problems
        self._metrics = prometheus_client.make_wsgi_app(registry)

    @property
    def port(self) -> int:
        """Port that the server listens on, once it is started."""
        return self._server.bind_addr[1]

    def start(self) -> None:
        """Listen, and answer requests in threads.

        :raises InvalidInput: the address cannot be listened on
        """
        self._server = http_server.HttpServer(
            parse_address(self._address), self, numthreads=_THREADS,
            reuse_port=self._shared)
        try:
            self._server.prepare()
        # ValueError: port 0, which cannot be shared.
        except (OSError, ValueError) as error:
            raise exceptions.InvalidInput(
                f'Cannot listen on "{self._address}": {error}; set [metrics]'
                f' listen to a free address of this host, or leave it empty.'
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve, name='metrics', daemon=True)
        self._thread.start()
        LOG.info('Metrics are at http://%s:%d/metrics',
                 *self._server.bind_addr)

    def stop(self) -> None:
        """Stop listening."""
        self._server.stop()
        self._thread.join()

    def __call__(self, environ: dict[str, typing.Any],
                 start_response: StartResponse
                 ) -> collections.abc.Iterable[bytes]:
        """Answer one request."""
        if environ['REQUEST_METHOD'] not in ('GET', 'HEAD'):
            return _answer(start_response, '405 Method Not Allowed', {
                'error': 'Only GET is answered here.'})
        path = environ.get('PATH_INFO', '').rstrip('/')
        if path == '/metrics':
            return self._metrics(environ, start_response)
        if path == '/live':
            return _answer(start_response, '200 OK', {'live': True})
        if path == '/ready':
            problems = list(self._problems())
            return _answer(
                start_response,
                '503 Service Unavailable' if problems else '200 OK',
                {'ready': not problems, 'problems': problems})
        return _answer(start_response, '404 Not Found', {
            'error': 'There are /metrics, /live and /ready.'})


def _answer(start_response: StartResponse, status: str,
            document: dict[str, typing.Any]) -> list[bytes]:
    body = json.dumps(document).encode() + b'\n'
    start_response(status, [('Content-Type', 'application/json'),
                            ('Content-Length', str(len(body)))])
    return [body]


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of ADDRESS:PORT.

    :raises InvalidInput: it has another form
    """
    try:
        host, port = netutils.parse_host_port(text)
    except ValueError:
        host, port = None, None
    if not host or port is None or not 0 <= port <= 65535:
        raise exceptions.InvalidInput(
            f'[metrics] listen is "{text}"; use ADDRESS:PORT, such as'
            f' 127.0.0.1:9796 or [::1]:9796.')
    return host, port


class Families:
    """Collects metric families for one scrape.

    A value of None is left out: what is unknown is not zero.
    """

    def __init__(self) -> None:
        self._found: dict[str, _Family] = {}

    def gauge(self, name: str, text: str, value: float | None,
              **labels: str) -> None:
        """Add a value that goes up and down."""
        self._add(metrics_core.GaugeMetricFamily, name, text, value, labels)

    def counter(self, name: str, text: str, value: float | None,
                **labels: str) -> None:
        """Add a value that only grows while the process runs.

        :param name: without ``_total``, which is added
        """
        self._add(metrics_core.CounterMetricFamily, name, text, value, labels)

    def _add(self, kind: type[_Family], name: str, text: str,
             value: float | None, labels: dict[str, str]) -> None:
        if value is None:
            return
        if name not in self._found:
            self._found[name] = kind(f'{PREFIX}_{name}', text,
                                     labels=list(labels))
        self._found[name].add_metric(list(labels.values()), float(value))

    def __iter__(self) -> collections.abc.Iterator[registries.Metric]:
        return iter(self._found.values())


class Collector(registries.Collector):
    """Reads current values at each scrape.

    :param add: adds them
    """

    def __init__(self, add: collections.abc.Callable[[Families], object]
                 ) -> None:
        self._add = add

    def describe(self) -> list[registries.Metric]:
        """Return nothing: the names are known when values are."""
        return []

    def collect(self) -> collections.abc.Iterable[registries.Metric]:
        """Return all values."""
        found = Families()
        self._add(found)
        return found
