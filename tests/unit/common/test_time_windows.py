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
import datetime

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import time_windows
from tests import base

# 2026-11-20 is a Friday.
FRIDAY = datetime.datetime(2026, 11, 20)


def at(hour: int, minute: int = 0, days: int = 0) -> datetime.datetime:
    return FRIDAY + datetime.timedelta(days=days, hours=hour, minutes=minute)


class WindowsTest(base.TestCase):

    def test_none_is_always_open(self):
        self.assertTrue(time_windows.Windows([]).open_at(at(3)))

    def test_end_is_exclusive(self):
        window = time_windows.Windows(['08:00-09:30'])
        self.assertTrue(window.open_at(at(8)))
        self.assertTrue(window.open_at(at(9, 29)))
        self.assertFalse(window.open_at(at(9, 30)))
        self.assertFalse(window.open_at(at(7, 59)))

    def test_past_midnight_belongs_to_the_day_it_starts_on(self):
        window = time_windows.Windows(['mon-fri 22:00-06:00'])
        self.assertTrue(window.open_at(at(23)))
        self.assertTrue(window.open_at(at(5, days=1)))
        self.assertFalse(window.open_at(at(23, days=1)))
        self.assertFalse(window.open_at(at(5, days=2)))
        self.assertFalse(window.open_at(at(5, days=3)))

    def test_days_wrap_around_the_week(self):
        window = time_windows.Windows(['sat-mon 00:00-24:00'])
        self.assertFalse(window.open_at(at(12)))
        for days in (1, 2, 3):
            self.assertTrue(window.open_at(at(12, days=days)))
        self.assertFalse(window.open_at(at(12, days=4)))

    def test_any_of_several(self):
        window = time_windows.Windows(['01:00-02:00', 'fri 10:00-11:00'])
        self.assertTrue(window.open_at(at(10, 30)))
        self.assertFalse(window.open_at(at(10, 30, days=1)))

    def test_seconds_per_day(self):
        for texts, hours in (([], 24), (['22:00-06:00'], 8),
                             (['22:00-06:00', '05:00-07:00'], 9),
                             (['sat-sun 00:00-24:00'], 48 / 7)):
            self.assertAlmostEqual(
                hours * 3600, time_windows.Windows(texts).seconds_per_day())

    def test_errors_quote_the_text(self):
        for text in ('always', '25:00-26:00', '10:75-11:00',
                     'mon-foo 10:00-11:00', '10-11'):
            error = self.assertRaises(exceptions.InvalidInput,
                                      time_windows.Windows, [text])
            self.assertIn(text, str(error))
