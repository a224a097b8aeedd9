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
"""Boots from an image that is still arriving.

The reads are those of a guest's boot (bench/lazy/boot.json; "record" records
others), with jitter for each instance; --speed divides the think times.
"boots" replays them in virtual time, the others in real time through
diffcached, with links shaped by the data planes over loopback: the
repository sends 100 Mbit/s with 20 ms to the first byte, each host 200 Mbit/s.
"""

import pathlib

from bench.harness import cases

COUNTS = (1, 8, 16, 32, 64, 100, 120)
MODES = ('alone', 'on-demand', 'first', 'no-files', 'later', 'boot-set',
         'kill')
WAYS = ('local', 'full', 'on-demand', 'read-ahead', 'profile', 'carried',
        'hydrating', 'readahead', 'scan', 'readahead-2', 'scan-2', 'qemu')
_PAGE = ('reference/lazy-boot-benchmark',)
_REAL = ('reference/lazy-boot-real-time',)
_BESIDE = ('reference/lazy-boot-beside',)


def _speed(quick: float) -> cases.Option:
    return cases.Option('speed', 1.0, 'divide recorded think times by this',
                        quick=quick)


_SEED = cases.Option('seed', 0, 'of the jitter')
_TRACE = cases.Option('trace', None, 'scenario that was recorded, instead of'
                      ' bench/lazy/boot.json', kind=pathlib.Path)

CASES = (
    cases.Case(
        'boots', 'Boots of 1 to 120 instances in virtual time.',
        'boots_virtual:boots', _PAGE, (
            _speed(1.0), _SEED, _TRACE,
            cases.Option('synthetic', False, 'reads that have the shape that'
                         ' the paper describes, recorded from no guest'),
            cases.Option('counts', COUNTS, 'instances', many=True,
                         quick=(1, 8)),
            cases.Option('image', None, 'the image that was recorded: show'
                         ' what the rest of files that are read would save',
                         kind=pathlib.Path))),
    cases.Case(
        'record', 'Record the reads of a guest that boots in QEMU, without'
        ' acceleration, for --trace.', 'record:record', _PAGE, (
            cases.Option('image', None, 'raw disk', kind=pathlib.Path),
            cases.Option('marker', 'DIFFCACHE-GUEST-READY', 'of the console,'
                         ' where the boot ends'),
            cases.Option('seconds', 300.0, 'to wait for it', quick=2.0)),
        ('qemu-system-x86_64',)),
    cases.Case(
        'site', "Boots of a site's hosts through diffcached, in real time.",
        'site:site', _REAL, (
            _speed(40.0), _SEED, _TRACE,
            cases.Option('counts', (8, 16), 'hosts', many=True, quick=(2,)),
            cases.Option('modes', ('alone', 'on-demand', 'first', 'later',
                                   'boot-set', 'kill'),
                         'alone: on demand, each host over the WAN; no-files:'
                         ' a first run without the rest of files; boot-set:'
                         " hosts keep the profile's chunks before; kill: a"
                         ' first run in which two hosts are killed',
                         choices=MODES, many=True, quick=('first', 'later'),
                         selects=True),
            cases.Option('fan_outs', (-1,), 'requests that a host answers at a'
                         ' time until it refers others; -1: as usual',
                         many=True),
            cases.Option('rounds', 1, 'of each mode'),
            cases.Option('image', None, 'the image that was recorded, instead'
                         ' of random bytes', kind=pathlib.Path)), root=True),
    cases.Case(
        'hydrate', 'Four hosts hydrate an image.', 'site:hydrate', _REAL, (
            cases.Option('size', 64, 'MiB of the image', quick=2),
            cases.Option('rounds', 1, 'rounds')), root=True),
    cases.Case(
        'others', 'One boot in real time, beside nbdkit, qemu-storage-daemon'
        ' and a full transfer.', 'others:others', _BESIDE, (
            _speed(200.0), _SEED,
            cases.Option('ways', WAYS, 'ways', choices=WAYS, many=True,
                         selects=True,
                         quick=('local', 'on-demand', 'readahead')),
            cases.Option('rounds', 3, 'rounds', quick=1)),
        ('curl', 'ip', 'tc', 'nbdkit', 'nbdfuse', 'qemu-img',
         'qemu-storage-daemon'), root=True),
    cases.Case(
        'fuse', 'Reads of a whole image through FUSE, beside the plain file'
        ' and qemu-storage-daemon.', 'fuse:fuse', _BESIDE, (
            cases.Option('size', 512, 'MiB of the image', quick=8),
            cases.Option('rounds', 3, 'rounds', quick=1),
            cases.Option('seconds', 5, 'of each measurement', quick=1)),
        ('fio', 'qemu-storage-daemon'), root=True),
)
