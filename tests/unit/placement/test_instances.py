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

import json
import os
import tempfile

from diffcache_openstack.placement import instances
from tests import base
from tests.unit.placement import shapes


class TestBadInput(base.TestCase):
    def refused(self, opening, **changes):
        document = {**shapes.document('testbed_s0'), **changes}
        error = self.assertRaises(instances.InstanceError, instances.from_dict,
                                  document)
        self.assertTrue(str(error).startswith(opening), str(error))
        self.assertNotIn('\n', str(error))

    def test_sizes(self):
        self.refused('sizes[1]', sizes=[7000, -1, 7000, 7000, 7000])
        self.refused('sizes[2]', sizes=[7000, 1, float('nan'), 1, 1])
        self.refused('sizes[0]', sizes=[None, 1, 1, 1, 1])
        self.refused('sizes[0]', sizes=['7', 1, 1, 1, 1])
        self.refused('sizes', sizes=[])
        self.refused('sizes[1]: must be at least a byte',
                     sizes=[1, 1e-9, 1, 1, 1])
        self.refused('sizes[0]: must be at most', sizes=[2e9, 1, 1, 1, 1])

    def test_a_field_that_is_missing(self):
        for field in ('sizes', 'patch_sizes', 'capacities', 'rates',
                      'bandwidths'):
            document = shapes.document('testbed_s0')
            del document[field]
            error = self.assertRaises(instances.InstanceError,
                                      instances.from_dict, document)
            self.assertTrue(str(error).startswith(f'{field}: missing'))

    def test_patches(self):
        self.refused('patch_sizes[0]', patch_sizes=[[1, 1, 5, 1]])
        self.refused('patch_sizes[0][2]', patch_sizes=[[0, 1, -5, 1]])
        self.refused('patch_sizes[0][2]', patch_sizes=[[0, 1, None, 1]])
        self.refused('patch_sizes[0][2]', patch_sizes=[[0, 1, 'x', 1]])
        self.refused('patch_sizes[0][3]', patch_sizes=[[0, 1, 5, -1]])
        self.refused('patch_sizes[0][1]', patch_sizes=[[0, 9, 5, 1]])
        self.refused('patch_sizes[0]', patch_sizes=[[0, 1, 5]])
        self.refused('patch_sizes[2]',
                     patch_sizes=[[0, 1, 5, 1], [1, 0, 5, 1], [0, 1, 6, 1]])

    def test_wire_sizes(self):
        self.refused('wire_sizes', wire_sizes=[1, 2])
        for wrong in (0, -1, 10 ** 9, None):
            self.refused('wire_sizes[2]', wire_sizes=[1, 1, wrong, 1, 1])

    def test_capacities(self):
        self.refused('capacities', capacities=[10, 10, 10])
        self.refused('capacities[1]', capacities=[5000, -1, 8000])

    def test_rates(self):
        self.refused('rates', rates=[[0, 0, 0]] * 5)
        self.refused('rates[0][1]', rates=[[1, -1, 0]] + [[1, 1, 1]] * 4)
        self.refused('rates[0][1]', rates=[[1, None, 0]] + [[1, 1, 1]] * 4)
        self.refused('rates[0][1]',
                     rates=[[1, float('inf'), 0]] + [[1, 1, 1]] * 4)
        self.refused('rates[3]', rates=[[1, 1, 1]] * 3 + [[1]] * 2)
        self.refused('rates', rates=[[1, 1, 1]])

    def test_bandwidths(self):
        self.refused('bandwidths.peer', bandwidths={'local': 4, 'repo': 1})
        self.refused('bandwidths.repo',
                     bandwidths={'local': 4, 'peer': 2, 'repo': 0})

    def test_extras(self):
        self.refused('sites', sites=[0])
        self.refused('excluded[0]', excluded=[4])
        self.refused('placed.templates[0]', placed={'templates': [[9, 1]]})
        self.refused('pinned.patches[0]', patch_sizes=[[0, 1, 5, 1]],
                     pinned={'patches': [[1, 0, 1]]})

    def test_file_that_is_no_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'instance.json')
            with open(path, 'w') as sink:
                sink.write('{"sizes": [')
            error = self.assertRaises(instances.InstanceError, instances.load,
                                      path)
            self.assertIn(path, str(error))
            self.assertRaises(instances.InstanceError, instances.load,
                              path + 'x')


class TestInstance(base.TestCase):
    def test_document_survives_a_round_trip(self):
        document = shapes.small(2, hosts=3)
        document['sites'] = [0, 1, 0]
        document['excluded'] = [2]
        document['wire_sizes'] = [size / 2 for size in document['sizes']]
        document['placed'] = {'templates': [[1, 3]]}
        document['bandwidths']['repo'] = [10, 20, 30]
        first = shapes.to_dict(instances.from_dict(document))
        again = shapes.to_dict(instances.from_dict(first))
        self.assertEqual(json.dumps(first), json.dumps(again))
        self.assertEqual([10, 20, 30], first['bandwidths']['repo'])
        self.assertEqual({'templates': [[1, 3]], 'patches': []},
                         first['placed'])

    def test_hosts_of_a_site_are_renumbered(self):
        document = shapes.small(2, hosts=3)
        document['excluded'] = [3]
        document['pinned'] = {'templates': [[1, 1], [2, 2]]}
        instance = instances.from_dict(document)
        part = instance.only_hosts([1, 2])
        self.assertEqual(frozenset([2]), part.excluded)
        self.assertEqual(((2, 1),), part.pinned.templates)
        self.assertEqual(instance.capacities[1:].tolist(),
                         part.capacities.tolist())
