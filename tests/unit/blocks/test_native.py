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
from diffcache_openstack import _native
from diffcache_openstack.blocks import native
from diffcache_openstack.common import exceptions
from tests import base


class ErrorTableTest(base.TestCase):
    """One table of kinds of errors, in Rust; the types here agree with it."""

    def test_every_kind_has_a_type_that_is_as_retryable(self):
        for kind, is_retryable in _native.error_kinds():
            if kind == native.SYSTEM_ERROR:
                continue
            with self.subTest(kind=kind):
                self.assertIn(kind, native._MEANING)
                meaning = native.meaning_of(kind)
                self.assertEqual(
                    is_retryable,
                    issubclass(meaning, exceptions.RetryableError))
                self.assertNotEqual(
                    is_retryable,
                    issubclass(meaning, exceptions.PermanentError))

    def test_no_type_is_for_a_kind_that_does_not_exist(self):
        kinds = {kind for kind, _ in _native.error_kinds()}
        self.assertEqual(set(), set(native._MEANING) - kinds)

    def test_every_kind_is_raised_as_an_exception_of_its_name(self):
        for kind, _ in _native.error_kinds():
            if kind == native.SYSTEM_ERROR:
                continue
            with self.subTest(kind=kind):
                raised = getattr(_native, kind)
                self.assertTrue(issubclass(raised, _native.NativeError))
                error = self.assertRaises(native.meaning_of(kind),
                                          self.raise_translated, raised)
                self.assertIn('reason', str(error))

    def raise_translated(self, raised):
        with native.translated():
            raise raised('reason')

    def test_a_full_disk_and_a_cancelled_call_may_be_repeated(self):
        kinds = dict(_native.error_kinds())
        self.assertTrue(kinds['NoSpace'] and kinds['Cancelled'])
        for error in (exceptions.NoSpace, exceptions.Cancelled):
            self.assertTrue(issubclass(error, exceptions.RetryableError))

    def test_an_unknown_kind_is_permanent(self):
        self.assertIs(exceptions.PermanentError,
                      native.meaning_of('Unheard'))
