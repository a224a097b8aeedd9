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
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.common import exceptions
from tests import base


class ErrorTableTest(base.TestCase):
    """One table of kinds of errors, in Rust; the types here agree with it."""

    def test_every_kind_has_a_type_that_is_as_retryable(self):
        for kind, is_retryable in _native.error_kinds():
            if kind == native_errors.SYSTEM_ERROR:
                continue
            with self.subTest(kind=kind):
                self.assertIn(kind, native_errors._MEANING)
                meaning = native_errors.meaning_of(kind)
                self.assertEqual(
                    is_retryable,
                    issubclass(meaning, exceptions.RetryableError))
                self.assertNotEqual(
                    is_retryable,
                    issubclass(meaning, exceptions.PermanentError))

    def test_no_type_is_for_a_kind_that_does_not_exist(self):
        kinds = {kind for kind, _ in _native.error_kinds()}
        self.assertEqual(set(), set(native_errors._MEANING) - kinds)

    def test_every_kind_is_raised_as_an_exception_of_its_name(self):
        for kind, _ in _native.error_kinds():
            if kind == native_errors.SYSTEM_ERROR:
                continue
            with self.subTest(kind=kind):
                raised = getattr(_native, kind)
                self.assertTrue(issubclass(raised, _native.NativeError))
                error = self.assertRaises(native_errors.meaning_of(kind),
                                          self.raise_translated, raised)
                self.assertIn('reason', str(error))

    def raised_by(self, call, *arguments):
        """Return the kind of error that a native call raises."""
        error = self.assertRaises(_native.NativeError, call, *arguments)
        return type(error).__name__

    def test_errors_of_versions_and_qcow2_are_of_kinds_of_the_table(self):
        damaged = self.write_file('damaged', b'QFI\xfb' + bytes(200))
        callables = (lambda *_: b'', lambda _: damaged)
        store = _native.BlockStore(4096, None, *callables)
        store.add_map(1, damaged, bytes(32))
        kinds = dict(_native.error_kinds())
        for expected, retryable, call, arguments in (
                ('IntegrityError', True, store.verify_map, (1,)),
                ('ObjectMissing', True, store.verify_map, (2,)),
                ('InvalidInput', False, _native.BlockStore,
                 (1, None, *callables)),
                ('InvalidInput', False, _native.qcow2_probe, (damaged,))):
            with self.subTest(expected=expected, call=call):
                kind = self.raised_by(call, *arguments)
                self.assertEqual((expected, retryable), (kind, kinds[kind]))

    def raise_translated(self, raised):
        with native_errors.translated():
            raise raised('reason')

    def test_a_full_disk_and_a_cancelled_call_may_be_repeated(self):
        kinds = dict(_native.error_kinds())
        self.assertTrue(kinds['NoSpace'] and kinds['Cancelled'])
        for error in (exceptions.NoSpace, exceptions.Cancelled):
            self.assertTrue(issubclass(error, exceptions.RetryableError))

    def test_an_unknown_kind_is_permanent(self):
        self.assertIs(exceptions.PermanentError,
                      native_errors.meaning_of('Unheard'))
