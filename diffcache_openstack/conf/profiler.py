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
"""Options of traces, with the names that other services have for them.

They are not taken from osprofiler, which may be missing, so that a service
that is to trace without it can say so.
"""

from oslo_config import cfg

GROUP = cfg.OptGroup(
    'profiler',
    title='Traces',
    help='Traces of requests across services, by osprofiler: the extra'
         ' ``tracing`` of this package. Nova, Glance and the other services'
         ' have the same group.')

OPTS: list[cfg.Opt] = [
    cfg.BoolOpt(
        'enabled',
        default=False,
        help='''
Send spans of requests that carry a trace. Nothing is sent for other requests:
a trace is started by a client that knows one of ``hmac_keys``, for example
``openstack --os-profile KEY``. If it is enabled and osprofiler is not
installed, the service does not start.
'''),
    cfg.StrOpt(
        'hmac_keys',
        default='',
        secret=True,
        help='''
Secrets, separated by commas. Only traces that are signed with one of them are
followed. The services of a request need one secret in common: see the group
``[profiler]`` of Nova and Glance. Any client that knows a secret can make
services send spans. Required if ``enabled`` is true. Do not use
``SECRET_KEY``, osprofiler's default, which is public.
'''),
    cfg.StrOpt(
        'connection_string',
        default='messaging://',
        secret=True,
        help='''
Where spans are sent, as osprofiler writes it: ``messaging://`` is the message
broker of ``transport_url``, ``otlp://HOST:4318`` a collector of OpenTelemetry
or Jaeger, which takes the packages ``opentelemetry-sdk`` and
``opentelemetry-exporter-otlp``; ``redis://HOST:6379`` and
``elasticsearch://HOST:9200`` take the packages of the same name. Spans that
cannot be sent fast enough are dropped; requests do not wait for them.
'''),
]
