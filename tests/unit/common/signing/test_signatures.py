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
import time

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import signatures
from tests import base
from tests import host_key_files

CALL = signatures.Call('diffcache-conductor', None, 'report_holdings',
                       {'host': 'h1', 'holdings': [{'b': 1, 'a': [2]}]},
                       {'user_id': 'x'})


class SignaturesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.keys = host_key_files.Keys(self.directory / 'keys')
        self.key = self.keys.key('compute', 'h1')
        self.authority = self.keys.authority()
        self.envelope = signatures.sign_call(self.key, CALL)._asdict()

    def verify(self, call=CALL, lifetime=60, **changes):
        return signatures.verify_call(self.authority, lifetime, call,
                                      {**self.envelope, **changes})

    def refused(self, *arguments, **changes):
        error = self.assertRaises(exceptions.Forbidden, self.verify,
                                  *arguments, **changes)
        return str(error)


class TestCalls(SignaturesTest):

    def test_sender(self):
        sender = self.verify()
        self.assertEqual(('h1', 'compute', 'h1'), (
            sender.signer.name, sender.signer.role, sender.bound_host))

    def test_controllers_are_bound_to_no_host(self):
        self.envelope = signatures.sign_call(
            self.keys.key('controller', 'c'), CALL)._asdict()
        self.assertIsNone(self.verify().bound_host)

    def test_order_of_keys_does_not_matter(self):
        arguments = {'holdings': [{'a': [2], 'b': 1}], 'host': 'h1'}
        self.verify(CALL._replace(arguments=arguments))

    def test_all_of_a_call_is_covered(self):
        for changes in ({'topic': 'diffcache-agent.h1'},
                        {'namespace': 'versions'}, {'method': 'remove_host'},
                        {'arguments': {**CALL.arguments, 'host': 'h2'}},
                        {'arguments': {**CALL.arguments, 'more': None}},
                        {'context': {'user_id': 'y'}}, {'context': {}}):
            self.refused(CALL._replace(**changes))

    def test_what_is_added_to_the_context_is_dropped(self):
        context = {**CALL.context, 'is_admin': True, 'client_timeout': None}
        self.verify(CALL._replace(context=context))
        self.assertEqual(CALL.context, context)
        self.refused(CALL._replace(context={**CALL.context, 'is_admin': 1}),
                     context=['is_admin', 'user_id'])

    def test_all_of_an_envelope_is_covered(self):
        other = signatures.sign_call(self.key, CALL)
        for changes in ({'time': self.envelope['time'] + 1.0},
                        {'nonce': other.nonce},
                        {'signature': other.signature},
                        {'certificate': self.keys.key(
                            'compute', 'h2').certificate}):
            self.refused(**changes)

    def test_junk(self):
        for junk in (None, 7, 'x', [], {}, {'time': 1.0},
                     {**self.envelope, 'more': 1}):
            self.assertRaises(exceptions.Forbidden, signatures.verify_call,
                              self.authority, 60, CALL, junk)
        for changes in ({'time': 'x'}, {'time': float('nan')},
                        {'nonce': 7}, {'nonce': 'x' * 100_000},
                        {'context': None}, {'context': [[]]}):
            self.refused(**changes)

    def test_too_old_or_ahead(self):
        now = time.time()
        for seconds in (-61, 61):
            self.patch(signatures.time, 'time', lambda: now + seconds)
            self.assertIn('clocks', self.refused())


class TestLedger(SignaturesTest):

    def test_each_message_once(self):
        ledger = signatures.MemoryLedger(60)
        sender = signatures.verify_call(
            self.authority, 60, CALL,
            signatures.sign_call(self.key, CALL)._asdict())
        ledger.check(sender)
        ledger.admit(sender)
        error = self.assertRaises(exceptions.Forbidden, ledger.admit, sender)
        self.assertIn('accepted before', str(error))

    def test_what_an_earlier_process_may_have_accepted(self):
        sender = self.verify()
        time.sleep(0.01)
        ledger = signatures.MemoryLedger(60)
        # Retryable: a call that waited while its host started is repeated.
        self.assertRaises(exceptions.ServiceUnavailable, ledger.admit, sender)

    def test_clock_that_was_ahead_at_the_start(self):
        # Regression: nothing that changes state was accepted for two hours.
        now = time.time
        self.patch(signatures.time, 'time', lambda: now() + 7200)
        ledger = signatures.MemoryLedger(60)
        self.patch(signatures.time, 'time', now)
        ledger.admit(signatures.verify_call(
            self.authority, 60, CALL,
            signatures.sign_call(self.key, CALL)._asdict()))

    def test_old_messages_are_forgotten(self):
        ledger = signatures.MemoryLedger(60)
        signer = self.key.signer
        now = time.time()
        for number in range(10):
            at = now + 50 * number
            self.patch(signatures.time, 'time', lambda: at)
            ledger.admit(signatures.Sender(signer, at, str(number)))
        self.assertEqual(3, len(ledger._seen))


class TestAnswers(SignaturesTest):

    def setUp(self):
        super().setUp()
        self.conductor = self.keys.security('controller', 'c')
        self.agent = self.keys.security('compute', 'h1')
        self.sender = self.verify()
        self.nonce = self.sender.nonce

    def test_result(self):
        answer = self.conductor.answer(self.sender, {'a': [1, None]})
        self.assertEqual({'a': [1, None]}, self.agent.result(
            'diffcache-conductor', self.nonce, answer))

    def test_not_that_of_another_call_or_service(self):
        answer = self.conductor.answer(self.sender, 1)
        self.assertRaises(exceptions.Forbidden, self.agent.result,
                          'diffcache-conductor', '0' * 32, answer)
        answer = self.agent.answer(self.sender, 1)
        self.assertEqual(1, self.agent.result('diffcache-agent.h1',
                                              self.nonce, answer))
        for topic in ('diffcache-agent.h2', 'diffcache-conductor'):
            self.assertRaises(exceptions.Forbidden, self.agent.result, topic,
                              self.nonce, answer)

    def test_changed_or_unsigned(self):
        answer = self.conductor.answer(self.sender, 1)
        for wrong in ({**answer, signatures.ANSWER: '2'},
                      {signatures.ANSWER: '1'}, 1, None):
            self.assertRaises(exceptions.Forbidden, self.agent.result,
                              'diffcache-conductor', self.nonce, wrong)

    def test_errors_keep_their_type(self):
        for error in (exceptions.NotFound('no a'), exceptions.Busy('b')):
            found = self.agent.result(
                'diffcache-conductor', self.nonce,
                self.conductor.failure(self.sender, error))
            self.assertIs(type(error), type(found))
            self.assertEqual(str(error), str(found))
        self.assertIsNone(self.conductor.failure(None, error))
        self.assertIsInstance(exceptions.of_code('a_later_one', 'c'),
                              exceptions.ServiceUnavailable)

    def test_forged_errors(self):
        error = self.conductor.failure(self.sender, exceptions.Busy('b'))
        text = error[signatures.ERROR]
        result = self.conductor.answer(self.sender, ['not_found', 'b'])
        for wrong in ({**error, signatures.ERROR: text.replace('b', 'c')},
                      {signatures.ERROR: text},
                      # The signature of a result.
                      {signatures.ERROR: result[signatures.ANSWER],
                       signatures.FIELD: result[signatures.FIELD]}):
            self.assertRaises(exceptions.Forbidden, self.agent.result,
                              'diffcache-conductor', self.nonce, wrong)
        self.assertRaises(exceptions.Forbidden, self.agent.result,
                          'diffcache-conductor', '0' * 32, error)

    def test_answers_of_a_host_that_make_no_sense(self):
        for kind in (signatures.ANSWER, signatures.ERROR):
            for text in ('', '{', '1', '[1]', '[' * 100_000):
                answer = signatures._sign(self.agent.key, self.nonce, kind,
                                          text)
                if (kind, text) == (signatures.ANSWER, '1') \
                        or (kind, text) == (signatures.ANSWER, '[1]'):
                    continue
                self.assertRaises(
                    exceptions.Forbidden, self.conductor.result,
                    'diffcache-agent.h1', self.nonce, answer)

    def test_while_keys_are_introduced(self):
        waiting = self.keys.security('compute', 'h1', required=False)
        self.assertEqual(1, waiting.result('t', self.nonce, 1))
        self.assertEqual(1, self.conductor.answer(None, 1))
        signing = signatures.Security(self.key)
        answer = self.conductor.answer(self.sender, [2])
        self.assertEqual([2], signing.result('t', self.nonce, answer))
