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
"""Servers of a real OpenStack behind a thin link, by ways to cache images.

Needs what "tools/openstack up --computes 2" has brought up, runs as root, and
deletes every server and image of that OpenStack. Images are compressed qcow2
files, as distributions ship them. The ways:

plain       unmodified Nova, with its own image cache
stock       likewise, with Glance's own cache at the site, and Nova's precache
            where a case is planned, or before the clock starts
templates   the suite without patches: hosts share what they hold
diffcache   the suite as it is
"""

import pathlib

from bench.harness import cases

WAYS = ('plain', 'stock', 'templates', 'diffcache')
CASES_OF_CACHES = (
    'cold image', 'cold image, just uploaded', 'second host',
    'next build, planned', 'next build, unplanned',
    'next build, another host', 'same distribution', 'unrelated image',
    'cold image, small cache', 'second host, small cache',
    'next build, small cache', 'cold image, full cache',
    'next build, after a restart', 'conductor outage', '4 servers at once',
    '16 servers at once')
_STATE = cases.Option('state', pathlib.Path('.state/openstack'),
                      'state of tools/openstack', kind=pathlib.Path)
_WAYS = cases.Option('ways', WAYS, 'ways to measure', choices=WAYS, many=True,
                     selects=True)

CASES = (
    cases.Case('family', 'Figure 5 of DiffCache: servers of five images in'
               ' random order, on all hosts at once.', 'family:family',
               ('reference/openstack-benchmark',
                'contributor/single-machine'), (
                   _STATE, _WAYS,
                   cases.Option('wan', 20.0, 'Mbit/s of the link'),
                   cases.Option('requests', 3, 'servers on each host',
                                quick=1),
                   cases.Option('seed', 7, 'of the order of images')),
               root=True),
    cases.Case('hard', 'Cases in which a cache helps least; each begins with'
               ' empty caches.', 'hard:hard',
               ('reference/hard-cases', 'contributor/single-machine'), (
                   _STATE, _WAYS,
                   cases.Option('wan', 100.0, 'Mbit/s of the link'),
                   cases.Option('only', CASES_OF_CACHES, 'cases', many=True,
                                choices=CASES_OF_CACHES, selects=True,
                                quick=('cold image',)),
                   cases.Option('runs', 1, 'of each case and way: medians',
                                selects=True)), root=True),
)
