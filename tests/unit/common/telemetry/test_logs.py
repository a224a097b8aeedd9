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
"""Messages of logs cannot imitate entries or control terminals."""

import io
import logging

from oslo_config import cfg

from diffcache_openstack.common.telemetry import logs
from tests import base


class LogsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        root = logging.getLogger()
        self.addCleanup(setattr, root, 'handlers', list(root.handlers))
        self.addCleanup(root.setLevel, root.level)
        self.stream = io.StringIO()
        conf = cfg.ConfigOpts()
        logs.log.register_options(conf)
        conf([], project='test', default_config_files=[])
        self.patch(logs.log, 'setup', self.set_up)
        logs.setup(conf, 'test')
        self.stream.truncate(0)
        self.stream.seek(0)

    def set_up(self, _conf, _name):
        """Stand for oslo.log, whose handler would print."""
        logging.getLogger().handlers = [logging.StreamHandler(self.stream)]
        logging.getLogger().setLevel(logging.INFO)

    def test_control_characters_are_escaped(self):
        logging.getLogger('any').info(
            '%s failed: 100%%\tof it',
            'vm\n2026 ERROR forged\x1b[2J\x9b\u2028')
        self.assertEqual(
            'vm\\n2026 ERROR forged\\x1b[2J\\x9b\\u2028 failed: 100%\tof'
            ' it\n',
            self.stream.getvalue())

    def test_other_messages_are_as_they_were(self):
        logging.getLogger('any').info('Größe von %s: %d %%', 'Bär', 3)
        self.assertEqual('Größe von Bär: 3 %\n', self.stream.getvalue())

    def test_tracebacks_keep_their_lines(self):
        try:
            raise ValueError('x')
        except ValueError:
            logging.getLogger('any').exception('It\nfailed')
        lines = self.stream.getvalue().splitlines()
        self.assertEqual('It\\nfailed', lines[0])
        self.assertGreater(len(lines), 2)
