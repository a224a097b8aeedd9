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

import hypothesis
from hypothesis import strategies

from diffcache_openstack.ssdcache.engines import commands
from diffcache_openstack.ssdcache.engines import lvm
from tests import base

# Of LVM 2.03.16.
RECORDED_GROUP = '''  {
      "report": [
          {
              "vg": [
                  {"vg_free":"62914560", "vg_extent_size":"4194304"}
              ]
          }
      ]
  }
'''
RECORDED_EMPTY = '''  {
      "report": [
          {
              "lv": [
              ]
          }
      ]
  }
'''


def volumes(*rows):
    return json.dumps({'report': [{'lv': list(rows)}]})


class TestParse(base.TestCase):

    def test_recorded_answers(self):
        self.assertEqual(lvm.Group(62914560, 4194304),
                         lvm.parse_group('ssd', RECORDED_GROUP))
        self.assertEqual({}, lvm.parse_volumes('ssd', RECORDED_EMPTY))

    def test_volumes(self):
        self.assertEqual(
            {'a': lvm.LogicalVolume(7, True), 'b': lvm.LogicalVolume(8, False),
             'c': lvm.LogicalVolume(9, True)},
            lvm.parse_volumes('ssd', volumes(
                {'lv_name': 'a', 'lv_size': '7', 'lv_tags': 'diffcache'},
                {'lv_name': 'b', 'lv_size': '8', 'lv_tags': 'diffcache2'},
                {'lv_name': 'c', 'lv_size': '9', 'lv_tags': 'x,diffcache'})))

    def test_what_is_unknown(self):
        for old, new in (('"62914560"', '"60.00m"'), ('vg_free', 'free'),
                         ('"4194304"', '"0"'), ('"vg": [', '"vg": [{},')):
            error = self.assertRaises(
                commands.UnknownOutput, lvm.parse_group, 'ssd',
                RECORDED_GROUP.replace(old, new))
            self.assertIn('vgs', str(error))
        for row in ({}, {'lv_name': 1, 'lv_size': '7', 'lv_tags': ''},
                    {'lv_name': 'a', 'lv_size': '-7', 'lv_tags': ''},
                    {'lv_name': 'a', 'lv_size': '7', 'lv_tags': None}):
            self.assertRaises(commands.UnknownOutput, lvm.parse_volumes,
                              'ssd', volumes(row))

    @hypothesis.given(strategies.text())
    def test_any_text(self, text):
        self.assertRaises(commands.UnknownOutput, lvm.parse_volumes, 'ssd',
                          text)


class TestCommands(base.TestCase):

    def test_logical_volumes(self):
        self.assertEqual(
            ['lvcreate', '--yes', '--wipesignatures', 'n', '--zero', 'y',
             '--addtag', 'diffcache', '--name', 'a', '--size', '4096b', 'ssd'],
            lvm.create('ssd', 'a', 4096, True))
        self.assertEqual(['lvremove', '--yes', 'ssd/a', 'ssd/b'],
                         lvm.remove('ssd', ['a', 'b']))
