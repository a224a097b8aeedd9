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
import hypothesis
from hypothesis import strategies

from diffcache_openstack.ssdcache.engines import commands
from diffcache_openstack.ssdcache.engines import device_mapper as dm
from tests import base

# In the format of the kernel's documentation, with devices of others.
TABLES = '''\
vg-home: 0 409600 linear 8:3 2048
vg-home: 409600 409600 linear 8:4 2048
diffcache-a-0a1b2c3d: 0 2097152 cache 254:1 254:0 8:16 128 2 metadata2 \
writethrough smq 2 migration_threshold 2048
diffcache-b-0a1b2c3d: 0 2048 linear 8:32 0
'''
STATUS = '''\
vg-home: 0 409600 linear
vg-home: 409600 409600 linear
diffcache-a-0a1b2c3d: 0 2097152 cache 8 27/2048 128 6/1600 10 20 30 40 5 4 1 \
2 metadata2 writethrough 2 migration_threshold 2048 smq 0 rw -
diffcache-b-0a1b2c3d: 0 2048 linear
'''
WORDS = ['0', '1', '2', '128', 'cache', 'linear', '8:16', 'smq', '3/4', 'Fail',
         'writethrough', 'writeback', '\u0663', '-1', '']


class TestTables(base.TestCase):

    def test_of_our_devices(self):
        self.assertEqual(
            {'diffcache-a-0a1b2c3d': dm.Table(1 << 30, '8:16',
                                              'write-through'),
             'diffcache-b-0a1b2c3d': dm.Table(1 << 20, '8:32', None)},
            dm.parse_tables(TABLES))

    def test_no_devices(self):
        self.assertEqual({}, dm.parse_tables('No devices found\n'))
        self.assertEqual({}, dm.parse_status(''))

    def test_what_was_built_is_read(self):
        for mode in dm.FEATURES:
            table = dm.Table(1 << 30, '8:16', mode)
            self.assertEqual({'diffcache-x': table}, dm.parse_tables(
                'diffcache-x: ' + dm.cache_table(table, '254:1', '254:0')))

    def test_what_is_unknown(self):
        for old, new in (('cache 254', 'crypt 254'),
                         ('0 2097152', '8 2097152'),
                         ('128 2 ', '128 9 '), (' writethrough', ' fast'),
                         ('diffcache-b', 'diffcache-a'), ('8:32 0', '8:32'),
                         (': 0 2048 linear', ' 0 2048')):
            error = self.assertRaises(commands.UnknownOutput, dm.parse_tables,
                                      TABLES.replace(old, new))
            self.assertIn('dmsetup table', str(error))

    @hypothesis.given(strategies.text() | strategies.lists(
        strategies.sampled_from(WORDS)).map(
            lambda words: 'diffcache-x: ' + ' '.join(words)))
    def test_any_text(self, text):
        for parse in (dm.parse_tables, dm.parse_status):
            try:
                found = parse(text)
            except commands.UnknownOutput:
                continue
            self.assertIsInstance(found, dict)


class TestStatus(base.TestCase):

    def test_of_our_caches(self):
        self.assertEqual(
            {'diffcache-a-0a1b2c3d': dm.Status(
                65536, 6, 1600, 10, 20, 30, 40, 5, 1)},
            dm.parse_status(STATUS))

    def test_a_cache_that_failed(self):
        self.assertEqual({'diffcache-a': dm.Status(is_failed=True)},
                         dm.parse_status('diffcache-a: 0 8 cache Fail'))

    def test_what_is_unknown(self):
        for old, new in (('6/1600', '6'), ('6/1600', '6/x'), (' 40 ', ' -40 '),
                         (' 2 metadata2 writethrough 2 migration_threshold'
                          ' 2048 smq 0 rw -', '')):
            self.assertRaises(commands.UnknownOutput, dm.parse_status,
                              STATUS.replace(old, new))


class TestCommands(base.TestCase):

    def test_a_table_in_use_is_exchanged_in_three_steps(self):
        self.assertEqual([
            ['dmsetup', 'load', 'x', '--table', '0 8 linear 8:0 0'],
            ['dmsetup', 'suspend', 'x'], ['dmsetup', 'resume', 'x']],
            dm.exchange('x', dm.linear_table(4096, '8:0')))
