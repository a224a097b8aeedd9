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
"""Cases in which a cache helps least, and the data plane of hosts.

An embedded site of two hosts behind a shaped link serves images without a
history. Each case runs as plain Nova does, where each host downloads the
compressed qcow2 file of each image once and converts it, and with the
services' own code. What crossed the link is counted where it is sent.
"""

import pathlib

from bench.harness import cases

CASES_OF_CACHES = (
    'cold image', 'second host', 'next build, planned',
    'next build, unplanned', 'next build, another host', 'same distribution',
    'cold image, small cache', 'second host, small cache',
    'next build, small cache', 'next build elsewhere, small cache',
    'next build, full cache', 'next build, after a restart',
    'conductor outage', '4 servers at once', '16 servers at once',
    'next build, no patch yet', 'next build, none on request',
    'same distribution, no patch yet', 'same distribution, none on request')
_PAGE = ('reference/hard-cases',)
_BUILT = ('reference/hard-cases-ways',)
_PLANE = ('reference/data-plane',)
_ARRIVING = ('reference/data-plane-arriving',)
_NEIGHBOURS = ('reference/neighbours',)
_IMAGES = (
    cases.Option('images', None, 'raw images BASE NEXT OTHER: NEXT a later'
                 ' build of BASE, OTHER one of the same distribution with'
                 ' other packages', kind=pathlib.Path, many=True),
    cases.Option('wan', 100.0, 'Mbit/s of the link'))
_IMAGE = cases.Option('image', None, 'a raw image', kind=pathlib.Path)

CASES = (
    cases.Case('hard', 'Bytes over the WAN and seconds, beside plain Nova.',
               'hard:hard', _PAGE, (*_IMAGES, cases.Option(
                   'only', CASES_OF_CACHES, 'cases', many=True, selects=True,
                   choices=CASES_OF_CACHES,
                   quick=('cold image', 'next build, unplanned'))),
               ('qemu-img',)),
    cases.Case('parts', 'What each part of the services saves, in a case that'
               ' needs it.', 'hard:parts', _PAGE, (*_IMAGES, cases.Option(
                   'only', ('compression', 'borrowed files', 'patches',
                            'patches on request', 'claims'), 'parts',
                   many=True, selects=True, quick=('compression',))),
               ('qemu-img',)),
    cases.Case('held', 'An image that the host holds, from the request to the'
               ' file, beside cp; --work decides the filesystem.',
               'held:held', _PAGE, (
                   cases.Option('sizes', (234, 2000), 'MB of the images',
                                many=True, quick=(4,)),
                   cases.Option('rounds', 9, 'rounds', quick=1))),
    cases.Case('built', 'An image that is built from a base and a patch that'
               ' the host holds, beside what decompressing, hashing and'
               ' writing its changes take; --work decides the filesystem.',
               'built:built', _BUILT, (
                   cases.Option('size', 2000, 'MB of the images', quick=4),
                   cases.Option('percent', (1.0,), 'percent of the blocks'
                                ' that changed', many=True),
                   cases.Option('extent', 64, 'KiB of each change', quick=4),
                   cases.Option('rounds', 9, 'rounds', quick=1)),
               ('zstd',)),
    cases.Case('speed', 'A transfer by the data plane, with and without TLS,'
               ' beside sendfile and cp.', 'data_plane:speed', _PLANE, (
                   cases.Option('size', 1024, 'MB of the image', quick=4),
                   cases.Option('rounds', 3, 'rounds', quick=1)),
               ('openssl',)),
    cases.Case('wan', 'A compressed image over a WAN: the first byte, and the'
               ' share of the link.', 'data_plane:wan', _ARRIVING, (
                   _IMAGE, cases.Option('rounds', 3, 'rounds', quick=1),
                   cases.Option('rates', (20, 100), 'Mbit/s', many=True,
                                quick=(100,)))),
    cases.Case('neighbours', 'An operation of a tenant while something of'
               ' another one waits.', 'neighbours:neighbours', _NEIGHBOURS, (
                   cases.Option('size', 128, 'MiB of images', quick=8),
                   cases.Option('seconds', 5, 'of each measurement', quick=1),
                   cases.Option('rounds', 3, 'rounds', quick=1)),
               ('nbdkit',), root=True),
)
