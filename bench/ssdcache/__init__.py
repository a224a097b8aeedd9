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
"""The SSD cache: the paper's tables, and other servers of NBD beside it.

"paper", "mix", "sizing" and "decisions" are simulations with one seed, the
others serve volumes over NBD. Blocks have 4 KiB. --scale makes everything
smaller by a factor.
"""

from bench.harness import cases

_PAGE = ('reference/ssd-cache-benchmark',)
_SERVED = ('reference/ssd-cache-servers',)
_SEED = cases.Option('seed', 1, 'of the requests')
_ROUNDS = (cases.Option('rounds', 5, 'rounds', quick=1),
           cases.Option('seconds', 5, 'of each measurement', quick=1))


def _scale(value: int, quick: int) -> cases.Option:
    return cases.Option('scale', value, 'factor by which all is smaller',
                        quick=quick)


CASES = (
    cases.Case('paper', "The paper's tables, simulated; 5 minutes of CPU.",
               'paper:paper', _PAGE, (_scale(1, 256), _SEED)),
    cases.Case('mix', 'Five volumes share an SSD, and shift in the middle; 3'
               ' minutes.', 'mix:mix', _PAGE, (_scale(1, 256), _SEED)),
    cases.Case('sizing', 'CPU and memory of finding the best sizes.',
               'sizing:sizing', _PAGE, (
                   _SEED, cases.Option(
                       'capacities', (262144, 1048576, 4194304), 'blocks of'
                       ' the cache', many=True, quick=(4096,)))),
    cases.Case('decisions', 'CPU and memory of a decision at the end of an'
               ' epoch.', 'sizing:decisions', _PAGE, (
                   _SEED, cases.Option('volumes', (8, 64, 500), 'of a host',
                                       many=True, quick=(2,)))),
    cases.Case('correctness', 'Sequential reads through NBD, twice.',
               'served:correctness', _SERVED, (_scale(1, 1024),), ('fio',)),
    cases.Case('pair', 'Hits through NBD and of the simulation.',
               'served:pair', _SERVED, (_scale(32, 4096),), ('fio',)),
    cases.Case('web', 'A web server against three random readers, on a disk'
               ' that does one request at a time.', 'served:web', _SERVED,
               (_scale(32, 4096), *_ROUNDS[1:]), ('fio', 'nbdkit')),
    cases.Case('servers', 'Reads of cached blocks and writes, beside nbdkit'
               ' and qemu-storage-daemon.', 'served:servers',
               (*_SERVED, 'admin/ssd-cache'), _ROUNDS,
               ('fio', 'nbdkit', 'qemu-storage-daemon')),
    cases.Case('memory', 'Reads of cached blocks in memory and past it, by'
               ' io_uring and by threads.', 'memory:memory', _SERVED, (
                   *_ROUNDS, cases.Option('blocks', 1 << 20, 'of the cache',
                                          quick=1 << 14)), ('fio',)),
    cases.Case('guests', "Cached reads of a guest by vhost-user, beside QEMU's"
               ' block layer with NBD.', 'guests:guests', _SERVED, (
                   *_ROUNDS, cases.Option('blocks', 1 << 16, 'of the volume',
                                          quick=1 << 12)),
               ('cargo', 'fio', 'qemu-storage-daemon')),
    cases.Case('neighbour', 'Cached reads of a volume while another one is'
               ' attached, detached, resized, trimmed, or hangs.',
               'neighbour:neighbour', _SERVED, _ROUNDS, ('nbdkit',)),
    cases.Case('large', 'Memory, restart and detach of a full cache of 16'
               ' GiB.', 'served:large', _SERVED, (
                   cases.Option('blocks', 4 << 20, 'of the cache',
                                quick=1024),
                   cases.Option('reads', 100_000, 'for the part that hits',
                                quick=100)), ('fio',)),
    cases.Case('curves', 'Speed of curves, and errors of samples.',
               'curves:curves', ('user/ssd-cache-traces', *_PAGE), (
                   cases.Option('references', 10_000_000, 'of a trace',
                                quick=3000),
                   cases.Option('blocks', 2_000_000, 'of a volume',
                                quick=1000))),
)
