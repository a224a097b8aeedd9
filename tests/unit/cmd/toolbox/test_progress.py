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
"""The progress bar."""

import io
from unittest import mock

from diffcache_openstack.cmd.toolbox import progress
from tests import base


class _Terminal(io.StringIO):

    def isatty(self):
        return True


class BarTest(base.TestCase):

    def draw(self, stream: io.StringIO, seconds: float) -> str:
        with mock.patch('time.monotonic', side_effect=[0.0, seconds]):
            with progress.Bar('apply', stream) as bar:
                bar(50_000_000, 100_000_000)
                drawn = stream.getvalue()
        return drawn

    def test_long_work_is_drawn_on_a_terminal(self):
        stream = _Terminal()
        drawn = self.draw(stream, 2.0)
        self.assertIn('apply', drawn)
        self.assertIn('50%', drawn)
        self.assertIn('25.0 MB/s', drawn)
        self.assertTrue(stream.getvalue().endswith('\r\x1b[K'))

    def test_short_work_is_not_drawn(self):
        self.assertEqual('', self.draw(_Terminal(), 0.5))

    def test_nothing_is_drawn_in_a_file(self):
        self.assertEqual('', self.draw(io.StringIO(), 5.0))

    def test_each_pass_over_the_data_has_a_number_and_a_rate(self):
        stream = _Terminal()
        with mock.patch('time.monotonic', side_effect=[0.0, 2.0, 3.0, 5.0]):
            bar = progress.Bar('create', stream)
            bar(50_000_000, 100_000_000)
            bar(0, 100_000_000)
            bar(10_000_000, 100_000_000)
        self.assertIn('create, pass 2', stream.getvalue())
        self.assertIn('5.0 MB/s', stream.getvalue())

    def test_work_on_nothing_is_drawn(self):
        stream = _Terminal()
        with mock.patch('time.monotonic', side_effect=[0.0, 2.0]):
            progress.Bar('apply', stream)(0, 0)
        self.assertIn('0%', stream.getvalue())
