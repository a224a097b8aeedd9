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
"""Messages of any kind, as a client of the broker can send them.

Properties, checked with Hypothesis over every method of both tables: what is
refused is refused with an error of this project, and what is not has arguments
that its method takes. Nothing else is raised, whatever is sent.
"""

import base64
import copy
import types

from hypothesis import given
from hypothesis import strategies as st
import oslo_messaging

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.objects import versioned
from diffcache_openstack.rpc import gate
from diffcache_openstack.rpc import methods
from tests import base
from tests import host_key_files
from tests.unit.rpc import test_methods

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() \
    | st.text(max_size=40) | st.sampled_from([
        '../../..', '/etc/passwd', test_methods.ID, 'a' * 64, 2 ** 70, ''])
_NAMES = st.text(max_size=12) | st.sampled_from([
    f'{versioned.DiffCacheObject.OBJ_SERIAL_NAMESPACE}.{name}'
    for name in ('name', 'version', 'namespace', 'data', 'changes')])
VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(_NAMES, inner, max_size=4), max_leaves=10)
_CALLS = st.sampled_from([
    (table, *name) for table in (methods.CONDUCTOR, methods.AGENT)
    for name in table])


@st.composite
def spoiled(draw, value):
    """A good value with a part of it replaced, as plain values."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        name = draw(st.sampled_from(sorted(value, key=str)))
        return {**value, name: draw(spoiled(value[name]))}
    if isinstance(value, (list, tuple)) and value and draw(st.booleans()):
        index = draw(st.integers(0, len(value) - 1))
        return [*value[:index], draw(spoiled(value[index])),
                *value[index + 1:]]
    return draw(VALUES)


class Recorder:
    """Stands where the methods would be; notes what reaches them."""

    def __init__(self):
        self.reached = []

    def dispatch(self, incoming):
        self.reached.append(incoming.message)


class GateTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.serializer = messaging.ContextSerializer(
            versioned.Serializer())
        self.recorder = Recorder()

    def dispatcher(self, table, security):
        return messaging._GatedDispatcher(
            gate.Gate(table, security, signatures.MemoryLedger(120)), 'topic',
            messaging._Wire(self.serializer, security), self.recorder)

    def send(self, table, message, context, security=signatures.Security()):
        """Send a message; return the error that it is refused with."""
        incoming = types.SimpleNamespace(message=copy.deepcopy(message),
                                         ctxt=copy.deepcopy(context))
        try:
            self.dispatcher(table, security).dispatch(incoming)
        except oslo_messaging.ExpectedException as error:
            self.assertIsInstance(error.exc_info[1],
                                  exceptions.DiffCacheError)
            return error.exc_info[1]
        return None

    def good(self, table, namespace, name):
        """Arguments of a method, as they cross the bus."""
        return {argument: test_methods.sample(argument, field)
                for argument, field
                in table[namespace, name].arguments.items()}


class TestMessages(GateTest):

    @given(_CALLS, st.data())
    def test_arguments_of_every_method(self, call, data):
        table, namespace, name = call
        arguments = data.draw(spoiled(self.good(table, namespace, name)))
        before = len(self.recorder.reached)
        refused = self.send(table, {'namespace': namespace, 'method': name,
                                    'args': arguments}, {})
        if refused is None:
            reached = self.recorder.reached[before]['args']
            self.assertLessEqual(set(reached), set(
                table[namespace, name].arguments))
        self.assertEqual(before + (refused is None),
                         len(self.recorder.reached))

    @given(VALUES, VALUES, VALUES, VALUES)
    def test_messages_of_any_kind(self, namespace, name, arguments, other):
        self.assertIsNotNone(self.send(methods.CONDUCTOR, {
            'namespace': namespace, 'method': name, 'args': arguments,
            'other': other}, {}))


class TestSignatures(GateTest):

    def setUp(self):
        super().setUp()
        self.keys = host_key_files.Keys(self.directory / 'keys')
        self.security = self.keys.security('controller', 'c')
        key = self.keys.key('compute', 'h1')
        call = signatures.Call('topic', None, 'status', {}, {'a': 1})
        self.envelope = signatures.sign_call(key, call)._asdict()
        self.message = {'namespace': None, 'method': 'status', 'args': {}}

    def sent(self, envelope):
        return self.send(methods.AGENT, self.message,
                         {'a': 1, signatures.FIELD: envelope}, self.security)

    def test_the_envelope_to_spoil_is_valid(self):
        self.assertIsNone(self.sent(self.envelope))

    @given(st.data())
    def test_envelopes_of_any_kind(self, data):
        envelope = data.draw(spoiled(self.envelope))
        refused = self.sent(envelope)
        if refused is None:
            self.assertEqual(self.envelope, envelope)

    @given(st.binary(max_size=300), st.integers(0, 400), VALUES)
    def test_certificates_and_signatures(self, junk, at, other):
        own = base64.b64decode(self.envelope['certificate'])
        spoilt = base64.b64encode(
            own[:at] + junk + own[at + len(junk):]).decode()
        for certificate, signature in (
                (spoilt, self.envelope['signature']), (other, other),
                (base64.b64encode(junk).decode(), 'AAAA'),
                (self.envelope['certificate'],
                 base64.b64encode(junk).decode())):
            if certificate == self.envelope['certificate'] \
                    and signature == self.envelope['signature']:
                continue
            self.assertRaises(
                exceptions.Forbidden, self.security.authority.verify,
                certificate, signature, b'content')

    @given(VALUES)
    def test_answers_of_any_kind(self, answer):
        for given_answer in (answer, {signatures.ANSWER: answer},
                             {signatures.ERROR: answer,
                              signatures.FIELD: answer}):
            self.assertRaises(
                exceptions.Forbidden, self.security.result, 'topic',
                self.envelope['nonce'], given_answer)
