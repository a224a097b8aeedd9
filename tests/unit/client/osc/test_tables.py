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
"""How wide the tables of the listings are, with values as sites have them."""

import importlib.metadata
import io
import json
import types
from unittest import mock

from diffcache_openstack.client.osc import commands
from diffcache_openstack.client.osc import formats
from diffcache_openstack.client.osc.image import cached_images
from diffcache_openstack.client.osc.image import hosts
from diffcache_openstack.common.commands import cells
from tests import base

WIDTH = 100
IMAGE = '7e6b2a34-31fd-4a5e-9a0f-6f0d1c2b3a4d'
SERVER = '4986df29-b1c2-4e71-8d55-0c9f2a7b6e13'
HASH = 'a1b2c3d4e5f60718' * 4
GB = 1000 ** 3
TIME = '2026-11-24T20:36:32.108492Z'
REASON = ('Its file is encrypted; upload it without encryption, or remove it'
          ' from the image service.')
FILL = {'objects': 14, 'held_objects': 12, 'bytes': 25_400_000_000,
        'held_bytes': 20_100_000_000}
NAMES = ['debian-13-generic-20261101', 'ubuntu-24.04-server-20261015']

# Values of resources by their names in the API, at their usual widths.
VALUES = {
    'id': IMAGE, 'name': 'debian-13-generic-2611', 'site': 'edge-paris',
    'role': 'repository', 'is_alive': True, 'capacity': 250 * GB,
    'held': {'objects': 142, 'bytes': 123_456_789_012}, 'plan': FILL,
    'kind': 'image', 'bytes': 2_361_393_152, 'images': NAMES,
    'image_id': IMAGE, 'state': 'available', 'attempts': 12,
    'retry_at': TIME, 'error': REASON, 'family': IMAGE,
    'size': 2_361_393_152, 'data_size': 1_361_393_152, 'disk_format': 'qcow2',
    'host_count': 212, 'status': 'active', 'host': 'compute-01.edge1',
    'is_held': True, 'is_borrowed': False, 'base': HASH, 'target': HASH,
    'create_seconds': 123.4567, 'apply_seconds': 1.2345, 'reason': REASON,
    'terms': 3, 'way': 'patch over WAN', 'seconds': 123.4567,
    'wan_bytes': 999_400_000, 'lan_bytes': 999_400_000, 'detail': REASON,
    'generation': 1234, 'solver': 'greedy', 'cost_s': 12345.678, 'gap': 0.123,
    'created_at': TIME, 'priority': 1, 'saved_seconds': 12345.678,
    'saves_s': 12345.678, 'eviction': 'never', 'why': REASON,
    'progress': {'targets': 16, 'ready': 12, 'failed': 1,
                 'bytes': 999_400_000, 'bytes_done': 999_400_000},
    'is_pinned': True, 'expires_at': TIME, 'bytes_total': 2_361_393_152,
    'bytes_done': 361_393_152,
    'message': REASON, 'hosts': {'count': 12, 'alive': 11,
                                 'capacity': 250 * GB},
    'plan_generation': 1234, 'planned_at': TIME, 'requests_per_day': 12.345,
    'started_at': TIME, 'server_id': SERVER, 'every': 21600, 'keep_last': 24,
    'keep_hourly': 24, 'keep_daily': 14, 'keep_weekly': 8, 'keep_monthly': 12,
    'is_on_shutdown': True, 'is_on_delete': True, 'is_required': False,
    'trigger': 'shutdown', 'bytes_changed': 361_393_152,
    'bytes_stored': 161_393_152, 'pause_ms': 12.345, 'version_id': IMAGE,
    'done': 361_393_152, 'total': 2_361_393_152, 'mode': 'write-through',
    'limit': 25_000_000, 'blocks': 24_000_000, 'hits': 912, 'misses': 88,
    'policy': 'fairness', 'epoch': 300, 'volumes': 12, 'updated_at': TIME,
    'resource': 'version_policy_count_total', 'in_use': 7,
    'object_id': HASH,
}


class Resource(dict):
    """A resource of the API, or a dict of it."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def to_dict(self, computed=True):
        """All values."""
        return dict(self)


class Service:
    """Answers each call that lists with one resource."""

    def __getattr__(self, name):
        return lambda *_words, **_query: [Resource(VALUES)]

    def get_plan(self, _id):
        """A plan with one item, held by its host."""
        return types.SimpleNamespace(
            items=[Resource(VALUES, held=True)])

    def lookup(self, *_words, **_query):
        """The way of one image."""
        return {'ways': [Resource(VALUES)]}

    def lookups(self, *_words, **_query):
        """The way of one image to one host."""
        return [Resource(VALUES, way=VALUES, lazy_boot={'seconds': 12.345})]

    def limits(self, _project_id):
        """The use of one resource."""
        return {VALUES['resource']: {'limit': -1, 'in_use': 7}}


def listers():
    """Classes of all commands of the client that list, by command."""
    for point in importlib.metadata.entry_points(
            group='openstack.diffcache.v1'):
        kind = point.load()
        if issubclass(kind, commands.Lister):
            yield point.name.replace('_', ' '), kind


class Storage:
    """Volume types of a cloud that has no QoS specs."""

    def find_type(self, name, ignore_missing=True):
        """A type whose extra specs have it cached."""
        return types.SimpleNamespace(id=SERVER, name=name, extra_specs={
            'diffcache:ssd_cache': 'write-through'})

    def get(self, _path, params=None):
        """The first page, which is the last one."""
        return mock.Mock(status_code=200, content=b'{}',
                         json=lambda: {'qos_specs': []})


class TablesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        connection = mock.MagicMock(block_storage=Storage())
        self.app = types.SimpleNamespace(client_manager=types.SimpleNamespace(
            diffcache=Service(), sdk_connection=connection))
        for name in ('known_image_id', 'plan_id', 'project_id', 'site_name',
                     'image_id'):
            for _command, kind in listers():
                if hasattr(kind, name):
                    self.patch(kind, name, lambda *_words: IMAGE)

    def printed(self, kind, *options):
        """What a command prints with the arguments that it requires."""
        parser = kind(self.app, None).get_parser('test')
        # Where one of several is required, it is the first.
        firsts = [group._group_actions[0]
                  for group in parser._mutually_exclusive_groups
                  if group.required]
        words = ['one' for action in parser._actions
                 if not action.option_strings
                 and (action.required or action in firsts)]
        return self.printed_by(kind, *words, *options)

    def printed_by(self, kind, *words):
        """What a command prints with some arguments."""
        self.app.stdout = io.StringIO()
        command = kind(self.app, None)
        command.run(command.get_parser('test').parse_args(words))
        return self.app.stdout.getvalue()


class TestTables(TablesTest):

    def test_every_listing_fits(self):
        widths = {}
        for name, kind in listers():
            lines = self.printed(kind).splitlines()
            self.assertGreater(len(lines), 3, name)
            widths[name] = max(map(len, lines))
        self.assertGreater(len(widths), 20)
        self.assertEqual({}, {name: width for name, width in widths.items()
                              if width > WIDTH})

    def test_objects_of_a_site_fit(self):
        lines = self.printed_by(hosts.ListHostObjects, '--site',
                                'edge').splitlines()
        self.assertIn('| Host ', lines[1])
        self.assertLessEqual(max(map(len, lines)), WIDTH)

    def test_nothing_is_printed_as_python_prints_it(self):
        for name, kind in listers():
            text = self.printed(kind, *['--long'] * bool(kind.wide))
            for sign in ('{', "['", 'Resource('):
                self.assertNotIn(sign, text, name)

    def test_left_out_columns_exist(self):
        for name, kind in listers():
            if kind.wide:
                head = self.printed(kind, '--long').splitlines()[1]
                titles = {title.strip() for title in head.split('|')}
                self.assertLessEqual(kind.wide, titles, name)

    def test_programs_get_all_columns(self):
        for name, kind in listers():
            [row] = json.loads(self.printed(kind, '-f', 'json'))
            self.assertLessEqual(kind.wide, row.keys(), name)

    def test_a_column_that_is_asked_for(self):
        text = self.printed(hosts.ListHosts, '-c', 'Objects', '-c', 'Name')
        self.assertIn('| Objects |', text)

    def test_sentences_are_whole_for_programs(self):
        [row] = json.loads(self.printed(cached_images.ListPairs, '-f', 'json'))
        self.assertEqual(REASON, row['Reason'])


class TestTime(base.TestCase):

    def test_tables_leave_out_what_is_below_a_second(self):
        for value, expected in ((TIME, '2026-11-24T20:36:32Z'),
                                ('2026-11-24T20:36:32Z',
                                 '2026-11-24T20:36:32Z'), (None, '')):
            shown = cells.Time(value)
            self.assertEqual(expected, shown.human_readable())
            self.assertEqual(value or '', shown.machine_readable())


class TestFill(base.TestCase):

    def test_share_of_bytes(self):
        for plan, expected in (
                (FILL, '79% of 25.4 GB'), (None, 'no plan'),
                ({'objects': 0}, 'no plan'),
                (FILL | {'bytes': 0, 'held_bytes': 0}, '100% of 0 B')):
            shown = formats.FillShare(plan)
            self.assertEqual(expected, shown.human_readable())
            self.assertEqual(plan, shown.machine_readable())
