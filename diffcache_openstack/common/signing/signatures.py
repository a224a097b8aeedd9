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
"""Signatures of messages.

A call is signed over its destination, method, arguments and context, the time
and a number that is used once. Its answer, a result or an error, is signed
over that number, so that it answers no other call. Both signatures travel
beside what they cover: a service that does not support them ignores them.
"""

import collections
import dataclasses
import math
import secrets
import threading
import time
import typing

from oslo_serialization import jsonutils

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import host_keys

# Where a call's context has the signature.
FIELD = 'diffcache_signature'
ANSWER = 'diffcache_answer'
ERROR = 'diffcache_error'

_NONCE_BYTES = 16


class Call(typing.NamedTuple):
    """What a signature of a call covers.

    :param topic: where it is sent
    :param arguments: plain values, as they cross the wire
    :param context: the same
    """

    topic: str
    namespace: str | None
    method: str
    arguments: dict[str, typing.Any]
    context: dict[str, typing.Any]


class Envelope(typing.NamedTuple):
    """A signature, and what it takes to verify it.

    :param time: of signing, in seconds since 1970
    :param nonce: a text that is used once
    :param context: names of what it covers of the call's context; drivers of
        the bus add more on the way
    """

    context: list[str]
    certificate: str
    time: float
    nonce: str
    signature: str


@dataclasses.dataclass(frozen=True)
class Sender:
    """The host that signed a message."""

    signer: host_keys.Signer
    time: float
    nonce: str

    @property
    def bound_host(self) -> str | None:
        """The host that it may act for; None if it may for any."""
        if self.signer.role == host_keys.CONTROLLER:
            return None
        return self.signer.name


class Ledger(typing.Protocol):
    """Remembers which messages were accepted."""

    def admit(self, sender: Sender) -> None:
        """Accept a message that changes state, once.

        :raises Forbidden: it was accepted before, or its signer may not send
        """

    def check(self, sender: Sender) -> None:
        """Accept a message that changes nothing.

        :raises Forbidden: its signer may not send
        """


class MemoryLedger:
    """A ledger of one process, the only one that gets these messages.

    What was signed before the process started may have been accepted by an
    earlier one, and is refused as retryable: senders repeat the call.

    :param lifetime: seconds for which a signature is accepted
    """

    def __init__(self, lifetime: float) -> None:
        self._lifetime = lifetime
        self._began = time.monotonic()
        self._seen: collections.OrderedDict[str, float] = \
            collections.OrderedDict()
        self._lock = threading.Lock()

    def admit(self, sender: Sender) -> None:
        """Accept a message once.

        :raises Forbidden: it was accepted before
        :raises ServiceUnavailable: an earlier process may have accepted it
        """
        now = time.time()
        # By the clock of now: that of the start may have been wrong.
        if sender.time < now - (time.monotonic() - self._began):
            raise exceptions.ServiceUnavailable(
                f'The message of {sender.signer} was signed before this'
                f' process started: repeat the call, and compare the clocks of'
                f' both machines if that does not help.')
        with self._lock:
            # A time ahead by as much as is accepted stays valid as long again.
            while self._seen and next(iter(self._seen.values())) \
                    < now - 2 * self._lifetime:
                self._seen.popitem(last=False)
            if sender.nonce in self._seen:
                raise repeated(sender)
            self._seen[sender.nonce] = now

    def check(self, sender: Sender) -> None:
        """Accept a message that changes nothing."""


def repeated(sender: Sender) -> exceptions.Forbidden:
    """Return the error for a message that was accepted before."""
    return exceptions.Forbidden(
        f'The message of {sender.signer} was accepted before; it may have been'
        f' recorded and sent again.')


def sign_call(key: host_keys.HostKey, call: Call) -> Envelope:
    """Sign a call."""
    now, nonce = time.time(), secrets.token_hex(_NONCE_BYTES)
    return Envelope(sorted(call.context), key.certificate, now, nonce,
                    key.sign(_call_content(call, now, nonce)))


def verify_call(authority: host_keys.Authority, lifetime: float, call: Call,
                envelope: object) -> Sender:
    """Return who signed a call.

    :param lifetime: seconds for which a signature is accepted
    :param call: what the signature does not cover is removed from its context
    :param envelope: the signature, as it was received
    :raises Forbidden: the signature is none, wrong or too old
    """
    given = _envelope(envelope)
    for name in set(call.context) - set(given.context):
        del call.context[name]
    signer = authority.verify(
        given.certificate, given.signature,
        _call_content(call, given.time, given.nonce))
    if abs(time.time() - given.time) > lifetime:
        raise exceptions.Forbidden(
            f'The message {call.method} of {signer} was signed'
            f' {time.time() - given.time:.0f} s ago, and [messaging]'
            f' signature_lifetime is {lifetime:.0f} s; check the clocks of'
            f' both hosts.')
    return Sender(signer, given.time, given.nonce)


def sign_answer(key: host_keys.HostKey, nonce: str, result: typing.Any
                ) -> dict[str, typing.Any]:
    """Return an answer with its signature.

    :param nonce: of the call
    :param result: plain values
    """
    return _sign(key, nonce, ANSWER, jsonutils.dumps(result))


def sign_error(key: host_keys.HostKey, nonce: str,
               error: exceptions.DiffCacheError) -> dict[str, typing.Any]:
    """Return an error as an answer with its signature.

    :param nonce: of the call
    """
    return _sign(key, nonce, ERROR,
                 jsonutils.dumps([exceptions.code_of(error), str(error)]))


def verify_answer(authority: host_keys.Authority, nonce: str,
                  answer: dict[str, typing.Any]) -> host_keys.Signer:
    """Return who answered a call.

    :raises Forbidden: the signature is wrong, or that of another answer
    """
    kind, text = _kind(answer), answer[_kind(answer)]
    given = answer.get(FIELD)
    if not isinstance(given, dict) or not isinstance(text, str):
        raise exceptions.Forbidden('The answer has no signature.')
    return authority.verify(given.get('certificate'), given.get('signature'),
                            _answer_content(kind, nonce, text))


def read_answer(answer: dict[str, typing.Any]) -> typing.Any:
    """Return the result, or the error, that a signed answer has.

    :raises Forbidden: it has neither
    """
    try:
        value = jsonutils.loads(answer[_kind(answer)])
        if ERROR not in answer:
            return value
        code, message = value
        return exceptions.of_code(code, str(message))
    except (ValueError, TypeError, RecursionError) as error:
        raise exceptions.Forbidden('The answer cannot be read.') from error


def is_signed(answer: object) -> bool:
    """Return whether an answer has the form of a signed one."""
    return isinstance(answer, dict) and (ANSWER in answer or ERROR in answer)


def _envelope(value: object) -> Envelope:
    try:
        given = Envelope(**typing.cast(dict, value))
    except TypeError as error:
        raise exceptions.Forbidden('The message has no signature.') from error
    if not isinstance(given.time, float) or not math.isfinite(given.time) \
            or not isinstance(given.nonce, str) \
            or len(given.nonce) != 2 * _NONCE_BYTES \
            or not isinstance(given.context, list) \
            or not all(isinstance(name, str) for name in given.context):
        raise exceptions.Forbidden('The signature of the message has no time,'
                                   ' or no number.')
    return given


def _call_content(call: Call, when: float, nonce: str) -> bytes:
    return jsonutils.dump_as_bytes(['diffcache-call', *call, when, nonce],
                                   sort_keys=True)


def _sign(key, nonce, kind, text):
    return {kind: text, FIELD: {
        'certificate': key.certificate,
        'signature': key.sign(_answer_content(kind, nonce, text))}}


def _kind(answer):
    return ERROR if ERROR in answer else ANSWER


def _answer_content(kind: str, nonce: str, text: str) -> bytes:
    prefix = {ANSWER: b'diffcache-answer ', ERROR: b'diffcache-error '}[kind]
    return prefix + nonce.encode() + text.encode()


@dataclasses.dataclass(frozen=True)
class Security:
    """How a service signs messages, and which ones it believes.

    :param key: of its host; None to sign nothing
    :param authority: of the deployment; None to verify nothing
    :param required: whether messages without a signature are refused
    :param lifetime: seconds for which a signature is accepted
    """

    key: host_keys.HostKey | None = None
    authority: host_keys.Authority | None = None
    required: bool = False
    lifetime: float = 120.0

    def sender(self, call: Call) -> Sender | None:
        """Return who sent a call; None if that is unknown, and may be.

        :param call: its context has the signature, if there is one
        :raises Forbidden: the signature is wrong
        """
        envelope = call.context.get(FIELD)
        if self.authority is None or envelope is None:
            return None
        return verify_call(self.authority, self.lifetime, call, envelope)

    def answer(self, sender: Sender | None, result: typing.Any) -> typing.Any:
        """Return what to send back for a result, signed if a sender asked."""
        if self.key is None or sender is None:
            return result
        return sign_answer(self.key, sender.nonce, result)

    def failure(self, sender: Sender | None,
                error: exceptions.DiffCacheError) -> typing.Any:
        """Return what to send back for an error; None if it is not signed."""
        if self.key is None or sender is None:
            return None
        return sign_error(self.key, sender.nonce, error)

    @property
    def believes_only_signed(self) -> bool:
        """Whether answers without a signature are refused."""
        return self.authority is not None and self.required

    def result(self, topic: str, nonce: str, answer: typing.Any) -> typing.Any:
        """Return the result that an answer has, or the error.

        :param topic: that the call was sent to
        :param nonce: of the call
        :raises Forbidden: the answer is not that of the service of the topic
        """
        if not is_signed(answer):
            if self.believes_only_signed:
                raise exceptions.Forbidden(
                    f'The answer of {topic} is not signed; give that service'
                    f' a key, [messaging] key_file and authority_file.')
            return answer
        if self.authority is None:
            return read_answer(answer)
        signer = verify_answer(self.authority, nonce, answer)
        if signer.role != host_keys.CONTROLLER \
                and signer.name != topic.partition('.')[2]:
            raise exceptions.Forbidden(
                f'The answer of {topic} is signed by {signer}.')
        return read_answer(answer)
