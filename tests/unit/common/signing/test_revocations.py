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
"""Revoked keys, as a host without a database knows them."""

import json
import time
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.common.signing import revocations
from tests import base
from tests import host_key_files


class RevocationsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.keys = host_key_files.Keys(self.directory / 'keys')
        self.controller = self.keys.key('controller', 'c')
        self.host = self.keys.key('compute', 'h1')
        self.path = self.directory / 'revoked_keys.json'
        self.authority = self.keys.authority()
        self.revoked = self.opened()

    def opened(self):
        return revocations.Revocations(self.path, self.authority)

    def list(self, number, *hosts, key=None, until=None):
        until = time.time() if until is None else until
        return revocations.sign(
            key or self.controller,
            revocations.RevokedKeys(number, dict.fromkeys(hosts, until)))

    def verify(self, key=None):
        key = key or self.host
        return self.authority.verify(key.certificate, key.sign(b'x'), b'x')

    def test_revoked_key_is_refused_and_remembered(self):
        self.verify()
        self.revoked.update(self.list(1, 'h1'))
        self.assertRaises(exceptions.Forbidden, self.verify)
        self.verify(self.controller)
        # The next process knows it, without a conductor.
        self.authority = self.keys.authority()
        self.verify()
        self.assertEqual(1, self.opened().number)
        self.assertRaises(exceptions.Forbidden, self.verify)

    def test_full_filesystem_keeps_no_revoked_key_valid(self):
        # Regression: the list in the file was followed instead.
        document = self.list(1, 'h1')
        with mock.patch.object(files, 'write_json',
                               side_effect=exceptions.NoSpace('full')):
            self.revoked.update(document)
        self.assertRaises(exceptions.Forbidden, self.verify)
        # It is fetched, and stored, again.
        self.assertEqual(0, self.revoked.number)
        self.revoked.update(document)
        self.assertEqual(1, self.revoked.number)
        self.assertEqual(1, self.opened().number)

    def test_key_that_is_issued_later_is_accepted(self):
        self.revoked.update(self.list(1, 'h1', until=time.time() - 3600))
        self.verify()

    def test_older_list_is_refused(self):
        old, new = self.list(1), self.list(2, 'h1')
        self.revoked.update(new)
        error = self.assertRaises(exceptions.Forbidden, self.revoked.update,
                                  old)
        self.assertIn(str(self.path), str(error))
        self.assertRaises(exceptions.Forbidden, self.verify)
        # So it is after a restart.
        self.assertRaises(exceptions.Forbidden, self.opened().update, old)

    def test_only_controllers_revoke(self):
        for key in (self.host, self.keys.key('repository', 'hub')):
            self.assertRaises(exceptions.Forbidden, self.revoked.update,
                              self.list(1, 'c', key=key))
        self.assertFalse(self.path.exists())

    def test_controller_that_was_revoked_revokes_no_more(self):
        self.revoked.update(self.list(1, 'c'))
        self.assertRaises(exceptions.Forbidden, self.revoked.update,
                          self.list(2, 'h1'))

    def test_changed_lists(self):
        document = self.list(1, 'h1')
        for name, value in (
                ('list', document['list'].replace('h1', 'h2')),
                ('signature', self.controller.sign(b'else')),
                ('certificate', self.host.certificate), ('list', None)):
            self.assertRaises(exceptions.Forbidden, self.revoked.update,
                              {**document, name: value})
        self.assertEqual(0, self.revoked.number)

    def test_file_that_was_changed_is_ignored(self):
        self.revoked.update(self.list(1, 'h1'))
        document = json.loads(self.path.read_text())
        document['list'] = document['list'].replace('h1', 'h2')
        self.path.write_text(json.dumps(document))
        with self.assertLogs('diffcache_openstack', 'ERROR') as logged:
            self.assertEqual(0, self.opened().number)
        self.assertIn(str(self.path), logged.output[0])

    def test_list_outlives_the_certificate_of_its_signer(self):
        self.revoked.update(self.list(1, 'h1'))
        self.authority = self.keys.authority()
        later = time.time() + 40 * 86400
        self.patch(host_keys.time, 'time', lambda: later)
        self.assertEqual(1, self.opened().number)

    @given(st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8))
    def test_signed_nonsense(self, value):
        text = json.dumps(value)
        for document in (value, {
                'list': text, 'certificate': self.controller.certificate,
                'signature': self.controller.sign(text.encode())}):
            self.assertRaises(exceptions.Forbidden, self.revoked.update,
                              document)
