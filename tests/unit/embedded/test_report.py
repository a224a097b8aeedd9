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
import re

from diffcache_openstack.embedded import report
from tests import base

STREAM = (('host-1', 'system'), ('host-2', 'both'), ('host-3', 'java'))


def request(number, seconds, **changes):
    host, image = STREAM[number - 1]
    values = {
        'number': number,
        'host': host,
        'image': image,
        'seconds': seconds,
        'predicted_s': seconds,
        'filled': number > 1,
        'wan_bytes': 0,
        'source': 'peer',
        'sha256': 'ab' * 32,
        'identical': True,
    }
    return values | changes


def mode(*seconds):
    filled = seconds[1:]
    return {
        'mean_s': sum(seconds) / len(seconds),
        'mean_filled_s': sum(filled) / len(filled),
        'predicted_filled_s': 0.75,
        'ratio_to_templates': 0.125,
        'fill_s': 12.0,
        'wan_bytes': 123_400_000,
        'requests': [request(i + 1, s) for i, s in enumerate(seconds)],
    }


def document():
    return {
        'identical': True,
        'links': {'wan_mbit_s': 400, 'lan_mbit_s': 20000},
        'images': [
            {
                'name': 'system',
                'size': 1 << 30,
                'data_size': 251_000_000,
                'published_size': 120_000_000,
                'sha256': 'ab' * 32,
            }
        ],
        'modes': {
            'on_the_fly': mode(5.0, 0.25, 0.5),
            'repository': mode(6.0, 7.0, 8.0),
            'templates': mode(6.5, 3.0, 0.375),
            'fetch_and_patch': mode(6.25, 0.5, 0.75),
        },
        'hosts': [
            {
                'name': f'host-{number}',
                'capacity': capacity,
                'used': {
                    'repository': 0,
                    'templates': used,
                    'fetch_and_patch': 2 * used,
                    'on_the_fly': 2 * used,
                },
            }
            for number, capacity, used in (
                (1, 400_000_000, 100_000_000),
                (2, 600_000_000, 250_000_000),
                (3, 600_000_000, 300_000_000),
            )
        ],
        'boot': {
            'image': 'both',
            'marker_seen': True,
            'wan_bytes': 0,
            'seconds': 31.0,
        },
    }


class TestTable(base.TestCase):
    def lines(self, changed=None):
        return report.table(changed or document()).splitlines()

    def line(self, start, changed=None):
        found = [x for x in self.lines(changed) if x.startswith(start)]
        self.assertEqual(1, len(found), found)
        return found[0]

    def test_requests_show_every_mode_in_the_order_of_the_paper(self):
        self.assertEqual(
            ['7.000', '3.000', '0.500', '0.250'],
            re.findall(r'[\d.]{5}', self.line(' 2 host-2    both')),
        )

    def test_requests_during_the_fill_are_marked(self):
        self.assertEqual(4, self.line(' 1 host-1').count('*'))
        self.assertNotIn('*', self.line(' 2 host-2'))

    def test_means_and_predictions(self):
        self.assertIn('7.500', self.line('mean, cache filled'))
        self.assertIn('0.375', self.line('mean, cache filled'))
        self.assertIn('0.750', self.line('  by the cost model'))
        self.assertIn('0.125', self.line('  ratio to templates'))
        self.assertIn('123.4', self.line('WAN traffic'))

    def test_cache_use_is_by_host_and_mode(self):
        self.assertEqual(
            ['0 of 600', '250 of 600', '500 of 600', '500 of 600'],
            re.findall(r'\d+ of \d+', self.line('  host-2')),
        )

    def test_links_and_their_ratio(self):
        line = self.line('Links:')
        self.assertIn('400 Mbit/s', line)
        self.assertIn('20000 Mbit/s: 1 to 50', line)

    def test_success_is_said_with_the_bytes_of_the_boot(self):
        self.line('Every image served is byte-identical')
        self.assertIn('both', self.line('Boot of'))
        self.assertIn(' 0 bytes over the WAN', self.line('Boot of'))

    def test_a_wrong_image_is_named(self):
        changed = document()
        changed['identical'] = False
        changed['modes']['templates']['requests'][1].update(
            identical=False, sha256='cd' * 32
        )
        self.line('SOME IMAGES SERVED DIFFER', changed)
        line = self.line('  templates only, request 2: both', changed)
        self.assertIn('cd' * 32, line)

    def test_a_failed_boot_is_said(self):
        changed = document()
        changed['boot']['marker_seen'] = False
        self.assertIn('DID NOT COME UP', self.line('Boot of', changed))

    def test_a_site_that_built_nothing_is_said(self):
        changed = document()
        changed['boot'] = None
        self.line('NO IMAGE WAS BUILT', changed)

    def test_fits_a_terminal(self):
        self.assertLessEqual(max(len(line) for line in self.lines()), 92)

    def test_modes_that_were_not_run_are_left_out(self):
        changed = document()
        del changed['modes']['repository']
        self.assertNotIn('plain Nova', report.table(changed))


class TestFiles(base.TestCase):
    def test_json_holds_the_document_and_nothing_is_left_beside(self):
        path = self.directory / 'quickstart.json'
        path.write_text('{"old": true}')
        report.write_json(document(), path)
        self.assertEqual(document(), json.loads(path.read_text()))
        self.assertEqual([path], list(self.directory.iterdir()))

    def test_chart_is_a_png(self):
        path = self.directory / 'quickstart.png'
        report.draw(document(), path)
        self.assertEqual(b'\x89PNG\r\n\x1a\n', path.read_bytes()[:8])
        self.assertEqual([path], list(self.directory.iterdir()))

    def test_chart_follows_the_numbers(self):
        slower = document()
        slower['modes']['on_the_fly']['requests'][2]['seconds'] = 4.0
        fuller = document()
        fuller['hosts'][0]['used']['templates'] = 390_000_000
        pictures = set()
        for index, drawn in enumerate((document(), slower, fuller)):
            path = self.directory / f'{index}.png'
            report.draw(drawn, path)
            pictures.add(path.read_bytes())
        self.assertEqual(3, len(pictures))
