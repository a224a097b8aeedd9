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
"""Programs that control caches of the kernel, simulated.

They keep the state that the real programs and the kernel would, refuse what
those refuse, and answer in their documented formats. They run nothing.
"""

import collections.abc
import csv
import dataclasses
import io
import json
import os
import re

from diffcache_openstack.ssdcache.engines import commands

EXTENT = 4 << 20


class SimulatedPrograms:
    """Base: block devices are files.

    :ivar ran: commands, in their order
    :ivar fails: the beginning of commands that fail
    """

    def __init__(self) -> None:
        self.ran: list[list[str]] = []
        self.fails: tuple[str, ...] = ('nothing',)
        self._numbers: dict[str, str] = {}

    def __call__(self, words: collections.abc.Sequence[str],
                 stdin: str = '') -> str:
        words = list(words)
        self.ran.append(words)
        if tuple(words[:len(self.fails)]) == self.fails:
            raise self.failure(words, 'it was told to')
        work = getattr(self, words[0].replace('-', '_'), None)
        assert work is not None, words
        return work(words[1:], stdin)

    @staticmethod
    def failure(words, why):
        return commands.CommandFailed(f'{words}: {why}')

    def check(self, condition, words, why):
        if not condition:
            raise self.failure(words, why)

    def path_of(self, number: str) -> str:
        return next(path for path, each in self._numbers.items()
                    if each == number)

    def lsblk(self, words, _stdin):
        path = words[-1]
        if path.startswith('/dev/block/'):
            path = self.path_of(path.removeprefix('/dev/block/'))
        self.check(os.path.exists(path), words, 'not a block device')
        number = self._numbers.setdefault(
            os.path.realpath(path), f'8:{len(self._numbers) * 16}')
        return json.dumps({'blockdevices': [{
            'maj:min': number, 'size': os.path.getsize(path), 'ro': False}]})

    def sync(self, words, _stdin):
        assert len(words) == 1
        return ''


@dataclasses.dataclass
class _Mapped:
    """A device of the device mapper."""

    active: list[str]
    loaded: list[str] | None = None
    is_suspended: bool = False
    used: int = 0


class SimulatedLvm(SimulatedPrograms):
    """``vgs``, ``lvs``, ``lvcreate``, ``lvremove`` and ``dmsetup``.

    :ivar logical: sizes and tags of logical volumes
    :ivar mapped: devices of the device mapper, by name
    :ivar busy: names of those that somebody has open
    """

    def __init__(self, group: str = 'ssd', extents: int = 1000) -> None:
        super().__init__()
        self.group = group
        self.extents = extents
        self.logical: dict[str, tuple[int, str]] = {}
        self.mapped: dict[str, _Mapped] = {}
        self.busy: set[str] = set()

    # -- LVM

    def vgs(self, words, _stdin):
        self.check(words[-1] == self.group, words, 'not found')
        return self._report(words, 'vg', [{
            'vg_free': str(self.extents * EXTENT - sum(
                size for size, _ in self.logical.values())),
            'vg_extent_size': str(EXTENT)}])

    def lvs(self, words, _stdin):
        return self._report(words, 'lv', [
            {'lv_name': name, 'lv_size': str(size), 'lv_tags': tags}
            for name, (size, tags) in self.logical.items()])

    def _report(self, words, kind, rows):
        assert words[:5] == ['--reportformat', 'json', '--units', 'b',
                             '--nosuffix'], words
        asked = words[words.index('--options') + 1].split(',')
        return json.dumps({'report': [{kind: [
            {name: row[name] for name in asked} for row in rows]}]})

    def lvcreate(self, words, _stdin):
        options = dict(zip(words[1:-1:2], words[2:-1:2]))
        assert words[0] == '--yes' and words[-1] == self.group, words
        name = options['--name']
        size = int(options['--size'].removesuffix('b'))
        assert re.fullmatch('[a-zA-Z0-9+_.][a-zA-Z0-9+_.-]*', name), name
        self.check(name not in self.logical, words, 'already exists')
        self.check(size % EXTENT == 0 and size + sum(
            each for each, _ in self.logical.values())
            <= self.extents * EXTENT, words, 'insufficient free space')
        self.logical[name] = size, options['--addtag']
        return f'  Logical volume "{name}" created.\n'

    def lvremove(self, words, _stdin):
        assert words[0] == '--yes', words
        for word in words[1:]:
            group, name = word.split('/')
            self.check(group == self.group and name in self.logical, words,
                       'not found')
            self.check(not any(
                f'/dev/{word}' in (mapped.loaded or []) + mapped.active
                for mapped in self.mapped.values()), words, 'in use')
            del self.logical[name]
        return ''

    # -- the device mapper

    def dmsetup(self, words, _stdin):
        command, *rest = words
        return getattr(self, f'_{command}')(words, *rest)

    def _table(self, words):
        return self._lines(lambda mapped: self._numbered(mapped.active))

    def _status(self, words):
        return self._lines(self._status_of)

    def _lines(self, describe):
        if not self.mapped:
            return 'No devices found\n'
        return ''.join(f'{name}: {describe(mapped)}\n'
                       for name, mapped in self.mapped.items())

    def _numbered(self, table):
        if table[2] != 'cache':
            return ' '.join(table)
        return ' '.join([*table[:3], '254:0', '254:1', *table[5:]])

    def _status_of(self, mapped):
        table = mapped.active
        if table[2] != 'cache':
            return ' '.join(table[:3])
        total = self.logical[table[4].split('/')[-1]][0] // 65536
        return (f'{" ".join(table[:3])} 8 27/2048 128 {mapped.used}/{total}'
                f' 7 5 3 2 1 {mapped.used} 0 2 metadata2 {table[8]} 2'
                ' migration_threshold 2048 smq 0 rw - ')

    def _create(self, words, name, option, table):
        assert option == '--table'
        self.check(name not in self.mapped, words, 'device exists')
        self.mapped[name] = _Mapped(self._checked(words, table))
        return ''

    def _load(self, words, name, option, table):
        assert option == '--table'
        self.check(name in self.mapped, words, 'no such device')
        self.mapped[name].loaded = self._checked(words, table)
        return ''

    def _suspend(self, words, name):
        self.mapped[name].is_suspended = True
        return ''

    def _resume(self, words, name):
        mapped = self.mapped[name]
        assert mapped.is_suspended
        if mapped.loaded is not None:
            if mapped.loaded[4:5] != mapped.active[4:5]:
                mapped.used = 0
            mapped.active, mapped.loaded = mapped.loaded, None
        mapped.is_suspended = False
        return ''

    def _remove(self, words, name):
        self.check(name not in self.busy, words, 'Device or resource busy')
        del self.mapped[name]
        return ''

    def _message(self, words, name, sector, command, chunks):
        assert (sector, command) == ('0', 'invalidate_cblocks'), words
        mapped = self.mapped[name]
        self.check(mapped.active[8] == 'passthrough', words,
                   'cache has to be in passthrough mode')
        total = self.logical[mapped.active[4].split('/')[-1]][0] // 65536
        self.check(chunks == f'0-{total}', words, 'invalid range')
        mapped.used = 0
        return ''

    def _checked(self, words, table):
        fields = table.split()
        origin = fields[5] if fields[2] == 'cache' else fields[3]
        self.check(int(fields[1]) * 512 <= os.path.getsize(
            self.path_of(origin)), words, 'device too small')
        if fields[2] == 'cache':
            self.check(fields[6:8] == ['128', '1'] and fields[8] in (
                'writethrough', 'passthrough', 'writeback')
                and fields[9:] == ['smq', '0'], words, 'bad table')
            for part in fields[3:5]:
                self.check(part.removeprefix(f'/dev/{self.group}/')
                           in self.logical, words, 'no such device')
        return fields


class SimulatedCas(SimulatedPrograms):
    """``casadm``, as of Open CAS.

    :ivar caches: devices by the number of their cache
    :ivar cores: devices by number
    :ivar rules: percent of classes, by rule
    :ivar is_blank: whether the cache's device has nothing on it
    """

    BLOCKS = 1_000_070

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.caches: dict[int, str] = {}
        self.cores: dict[int, str] = {}
        self.rules: dict[str, int] = {}
        self.cutoffs: dict[int, list[str]] = {}
        self.is_blank = True
        self.policy = 'wt'

    def reboot(self):
        self.caches, self.cores = {}, {}

    def casadm(self, words, stdin):
        command = words[0].removeprefix('--').replace('-', '_')
        if command == 'io_class':
            return self._load_classes(words, stdin)
        return getattr(self, f'_{command}')(words, dict(
            zip(words[1::2], words[2::2])))

    def _list_caches(self, words, _options):
        if not self.caches:
            return 'No caches running\n'
        rows = [['type', 'id', 'disk', 'status', 'write policy', 'device'],
                ['cache', '1', self.caches[1], 'Running', self.policy, '-']]
        rows += [['core', core, disk, 'Active', '-', f'/dev/cas1-{core}']
                 for core, disk in self.cores.items()]
        return self._csv(rows)

    @staticmethod
    def _csv(rows):
        text = io.StringIO()
        csv.writer(text, lineterminator='\n').writerows(rows)
        return text.getvalue()

    def _start_cache(self, words, options):
        assert options['--cache-mode'] == 'wt', words
        self.check(self.is_blank or words[-1] == '--force', words,
                   'A metadata has been found on the device. Use --force.')
        self.caches[int(options['--cache-id'])] = options['--cache-device']
        self.is_blank = False
        return 'Successfully added cache instance 1\n'

    def _add_core(self, words, options):
        device = options['--core-device']
        self.check('/by-id/' in device, words, 'use correct by-id path')
        device = os.path.realpath(device)
        core = int(options['--core-id'])
        self.check(core not in self.cores and device not in
                   self.cores.values(), words, 'device is already a core')
        self.cores[core] = device
        return 'Successfully added core\n'

    def _remove_core(self, words, options):
        self.check(int(options['--core-id']) in self.cores, words, 'no core')
        del self.cores[int(options['--core-id'])]
        return ''

    def _set_param(self, words, options):
        assert options['--name'] == 'seq-cutoff', words
        self.cutoffs[int(options['--core-id'])] = words[7:]
        return ''

    def _load_classes(self, words, stdin):
        assert words[1:] == ['--load-config', '--cache-id', '1', '--file',
                             '/dev/stdin'], words
        rows = list(csv.DictReader(io.StringIO(stdin)))
        found = {}
        for row in rows:
            assert 0 <= int(row['IO class id']) <= 32
            assert len(row['Allocation']) == 4
            found[row['IO class name']] = round(
                float(row['Allocation']) * 100)
        assert found['unclassified'] == 0
        self.rules = found
        return ''

    def _stats(self, words, options):
        if '--core-id' not in options:
            return self._csv([
                ['Cache Id', 'Cache Size [4KiB Blocks]', 'Cache Size [GiB]',
                 'Cache Device', 'Write Policy', 'Status'],
                ['1', self.BLOCKS, '3.81', self.device, 'wt', 'Running']])
        names = {'Core Id': options['--core-id'],
                 'Occupancy [4KiB Blocks]': 0, 'Occupancy [%]': '0.0',
                 'Dirty [4KiB Blocks]': 0}
        names |= {f'{name} [Requests]': count for name, count in (
            ('Read hits', 70), ('Read deferred', 0),
            ('Read partial misses', 1), ('Read full misses', 20),
            ('Write hits', 7), ('Write partial misses', 2),
            ('Write full misses', 4), ('Pass-Through reads', 5),
            ('Pass-Through writes', 6))}
        names |= {'Reads from exported object [4KiB Blocks]': 100,
                  'Writes to exported object [4KiB Blocks]': 13}
        return self._csv([list(names), list(names.values())])
