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
"""Versions of disks, beside other programs that save them.

Successive states of one server's disk are built by bench/versions/build-chain
DIR (root, mmdebstrap, half an hour); with --quick tiny ones are made. Python's
modules are compiled before, as they are where the suite is installed. Nothing
is read from a cold disk. A program that is not installed is left out; restic
and borgbackup are Debian packages. Cinder's driver is installed into an
environment of its own, for which the size of the disk has to be a whole number
of GiB.
"""

import pathlib

from bench.harness import cases

PROGRAMS = ('diffcache', 'diffcache-auto', 'diffcache-quick', 'diffcache-raw',
            'restic', 'borg', 'borg-defaults', 'qcow2-external', 'cinder')
BACKUPS = ('version-store', 'restic', 'cinder-zlib', 'cinder-zstd')
_PAGE = ('reference/version-benchmark',)
_CHAIN = cases.Option('chain', None, 'folder of the states v01.raw and on',
                      kind=pathlib.Path)
_PROGRAMS = cases.Option(
    'programs', PROGRAMS, 'programs to measure', many=True, selects=True,
    choices=PROGRAMS, quick=('diffcache', 'diffcache-raw', 'qcow2-external'))

CASES = (
    cases.Case('programs', 'Ten versions of one server, by each program.',
               'programs:chain', _PAGE, (_CHAIN, _PROGRAMS, cases.Option(
                   'restore_all', False, 'restore each version')),
               ('qemu-img', 'qemu-io')),
    cases.Case('backups', 'Daily backups of a volume, by drivers of'
               ' cinder-backup and by restic.', 'backups:backups', _PAGE, (
                   _CHAIN, cases.Option(
                       'programs', BACKUPS, 'programs to measure', many=True,
                       selects=True, choices=BACKUPS,
                       quick=('version-store',)), cases.Option(
                           'restore_all', False, 'restore each version'))),
    cases.Case('servers', 'Servers with the same upgrades, saved to one place'
               ' as far as a program has one.', 'programs:servers', _PAGE,
               (_CHAIN, _PROGRAMS, cases.Option('servers', 3, 'servers',
                                                quick=2)),
               ('qemu-img', 'qemu-io')),
    cases.Case('running', 'Saving the disk of a guest that runs in QEMU.',
               'running:running', _PAGE, (
                   cases.Option('size', 20, 'GiB of the disk', quick=3),
                   cases.Option('scattered', 2048, 'blocks of 4 KiB written'
                                ' at random places', quick=16),
                   cases.Option('written', 2048, 'MiB written in a row',
                                quick=32)),
               ('qemu-img', 'qemu-system-x86_64')),
    cases.Case('first', 'The first save of a raw disk and its restore, beside'
               ' zstd and a durable write.', 'first:first', _PAGE, (
                   cases.Option('disk', None, 'raw disk',
                                kind=pathlib.Path),
                   cases.Option('rounds', 5, 'times that each is measured',
                                quick=1)), ('zstd',)),
    cases.Case('growth', 'Listing, saving and restoring a small disk in'
               ' stores of several sizes.', 'growth:growth', _PAGE, (
                   cases.Option('gib', (1.0, 10.0, 100.0), 'GiB of other'
                                ' blocks in the store', many=True,
                                selects=True, quick=(0.0625, 0.125)),)),
    cases.Case('names', 'A save in stores of up to 100 TiB and a million'
               ' versions, of which only the names exist.', 'names:names',
               _PAGE, (cases.Option('tib', (1.0, 10.0, 100.0), 'TiB of other'
                                    ' blocks in the store', many=True,
                                    selects=True, quick=(0.01,)),)),
    cases.Case('saves', 'Many saves in a row, of one block each, and a prune.',
               'growth:saves', _PAGE, (
                   cases.Option('versions', 1000, 'saves', quick=4),)),
    cases.Case('writers', 'Saves of 8 processes into one store, and the'
               ' commits of many saves in a row.', 'writers:writers', _PAGE, (
                   cases.Option('saves', 32, 'saves side by side', quick=8),
                   cases.Option('mib', 64, 'MiB of each disk', quick=1),
                   cases.Option('commits', 1000, 'saves in a row',
                                quick=20)), ('zstd',)),
    cases.Case('sampling', 'Blocks that are stored again since copies are'
               ' searched by samples.', 'sampling:sampling', _PAGE, (
                   cases.Option('mib', 512, 'MiB of a disk at first',
                                quick=4),)),
    cases.Case('hundred', 'A hundred versions of one disk: is the newest as'
               ' quick to restore as the oldest?', 'paper:hundred', _PAGE, (
                   cases.Option('disk', None, 'raw disk to start from',
                                kind=pathlib.Path),
                   cases.Option('versions', 100, 'versions', quick=4),
                   cases.Option('writes', 1000, 'blocks written before each',
                                quick=20),
                   cases.Option('places', 'used', 'blocks that are written:'
                                ' those with data at first, or all',
                                choices=('used', 'any')),
                   cases.Option('alpha', ('0', 'auto'), 'values of --alpha',
                                many=True))),
    cases.Case('alpha', 'Figure 11 of CloudVS: what alpha does.',
               'paper:alpha', _PAGE, (_CHAIN,)),
    cases.Case('redundancy', 'Figure 15 of CloudVS: what one store for several'
               ' servers saves.', 'paper:redundancy', _PAGE, (
                   _CHAIN, cases.Option('servers', 4, 'servers', quick=2))),
)
