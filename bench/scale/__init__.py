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
"""What grows with the number of images and hosts.

Seconds are CPU seconds. Each case starts servers of its own.
"""

import os

from bench.harness import cases

_PAGE = ('reference/scale',)

CASES = (
    cases.Case('hosts', 'What conductors, broker and database spend for many'
               ' light agents.', 'hosts:hosts', (*_PAGE, 'admin/sizing'), (
                   cases.Option('hosts', 100, 'agents', quick=4),
                   cases.Option('sites', 5, 'sites', quick=2),
                   cases.Option('conductors', 1, 'processes'),
                   cases.Option('images', 96, 'images', quick=16),
                   cases.Option('family', 8, 'images that share patches'),
                   cases.Option('seconds', 180.0, 'at rest', quick=5.0),
                   cases.Option('deliveries', 500, 'requests of costs',
                                quick=10),
                   cases.Option('within', 60.0, 'seconds for these',
                                quick=2.0),
                   cases.Option('processes', 2, 'for the agents', quick=1),
                   cases.Option('queues', 'classic', 'of the broker',
                                choices=('classic', 'quorum'))),
               ('mariadbd', 'rabbitmqctl')),
    cases.Case('api', 'Speed of listings, at a rate that does not wait for'
               ' answers.', 'listings:api', ('reference/api',), (
                   cases.Option('server', 'own', 'that runs the API; uwsgi is'
                                ' the Python package pyuwsgi',
                                choices=('own', 'uwsgi')),
                   cases.Option('rate', 200.0, 'requests a second',
                                quick=20.0),
                   cases.Option('seconds', 30.0, 'of the measurement',
                                quick=1.0),
                   cases.Option('images', 10_000, 'images', quick=200),
                   cases.Option('hosts', 100, 'hosts', quick=3),
                   cases.Option('workers', 2 * (os.cpu_count() or 1),
                                'processes', quick=1),
                   cases.Option('threads', 2, 'of each')), ('mariadbd',)),
)
