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

from diffcache_openstack.ssdcache.engines import casadm
from diffcache_openstack.ssdcache.engines import commands
from tests import base

# In the format of casadm's sources.
LIST = '''\
type,id,disk,status,write policy,device
core pool,-,-,-,-,-
core,-,/dev/sdz,Detached,-,-
cache,1,/dev/nvme0n1,Running,wt,-
core,1,/dev/sdb,Active,-,/dev/cas1-1
core,3,/dev/sdc,Inactive,-,/dev/cas1-3
cache,2,/dev/nvme1n1,Running,wb,-
core,1,/dev/sdd,Active,-,/dev/cas2-1
'''
COUNTS = (
    'Core Id,Occupancy [4KiB Blocks],Occupancy [%],Dirty [4KiB Blocks],'
    'Read hits [Requests],Read partial misses [Requests],'
    'Read full misses [Requests],Write hits [Requests],'
    'Write partial misses [Requests],Write full misses [Requests],'
    'Pass-Through reads [Requests],Pass-Through writes [Requests],'
    'Reads from exported object [4KiB Blocks],'
    'Writes to exported object [4KiB Blocks]\n'
    '1,100,12.5,0,1,2,3,4,5,6,7,8,9,10\n')


class TestList(base.TestCase):

    def test_a_cache_and_its_cores(self):
        self.assertEqual(
            casadm.Cache('/dev/nvme0n1', True, 'wt', {
                1: casadm.Core('/dev/sdb', '/dev/cas1-1', True),
                3: casadm.Core('/dev/sdc', '/dev/cas1-3', False)}),
            casadm.parse_list(1, LIST))
        self.assertEqual(['/dev/sdd'], [
            core.disk for core in casadm.parse_list(2, LIST).cores.values()])

    def test_a_cache_that_is_not_there(self):
        for text in (LIST, 'No caches running\n', ''):
            self.assertIsNone(casadm.parse_list(3, text))

    def test_what_is_unknown(self):
        for old, new in (('cache,1', 'pool,1'), ('cache,1', 'cache,x'),
                         (',device\n', '\n'), ('core,3,', 'core,3,,'),
                         ('core,1,/dev/sdb', 'core,-1,/dev/sdb')):
            error = self.assertRaises(commands.UnknownOutput,
                                      casadm.parse_list, 1,
                                      LIST.replace(old, new))
            self.assertIn('casadm --list-caches', str(error))

    @hypothesis.given(strategies.text() | strategies.lists(
        strategies.sampled_from(LIST.splitlines()
                                + ['"', 'core', 'x,' * 9])).map('\n'.join))
    def test_any_text(self, text):
        try:
            found = casadm.parse_list(1, text)
        except commands.UnknownOutput:
            return
        self.assertIsInstance(found, (casadm.Cache, type(None)))


class TestCounts(base.TestCase):

    def test_of_a_core(self):
        self.assertEqual(casadm.Counts(100, 0, 9, 10, 5, 16, 15),
                         casadm.parse_counts(1, 1, COUNTS))

    def test_size(self):
        self.assertEqual(70, casadm.parse_size(
            1, 'Cache Id,Cache Size [4KiB Blocks]\n1,70\n'))

    def test_what_is_unknown(self):
        for old, new in (('Occupancy [4KiB', 'Occupancy [8KiB'), (',0,', ',,'),
                         ('1,100,12.5', '1,-100,12.5'),
                         ('9,10\n', '9,10\n9\n'), ('9,10\n', '9\n')):
            error = self.assertRaises(commands.UnknownOutput,
                                      casadm.parse_counts, 1, 1,
                                      COUNTS.replace(old, new))
            self.assertIn('casadm --stats --cache-id 1 --core-id 1',
                          str(error))


class TestCommands(base.TestCase):

    def test_classes(self):
        self.assertEqual(
            'IO class id,IO class name,Eviction priority,Allocation\n'
            '0,unclassified,22,0.00\n'
            '1,core_id:eq:1&done,1,0.07\n'
            '2,core_id:eq:2&done,1,0.00\n'
            '3,core_id:eq:3&done,1,1.00\n',
            casadm.classes({3: 100, 1: 7, 2: 0}))

    def test_sequences(self):
        for sequential, words in ((0, ['--policy', 'never']),
                                  (1, ['--policy', 'always', '--threshold',
                                       '1']),
                                  (1 << 50, ['--policy', 'always',
                                             '--threshold', '4194181'])):
            self.assertEqual(words, casadm.set_cutoff(1, 2, sequential)[8:])
