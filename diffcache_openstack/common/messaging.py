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
"""RPC between the suite's services, on oslo.messaging.

All of it uses a :class:`Bus`, which is created from one configuration; nothing
is global, so that several sites can run in one process.
"""

import collections.abc
import contextlib
import functools
import socket
import typing

from oslo_concurrency import lockutils
from oslo_config import cfg
from oslo_log import log
import oslo_messaging
from oslo_messaging import exceptions as messaging_exceptions
from oslo_messaging.rpc import server as rpc_server
from oslo_versionedobjects import exception as ovo_exception

from diffcache_openstack.common import contexts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import rpc_history
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.common.telemetry import logs
from diffcache_openstack.common.telemetry import tracing

LOG = log.getLogger(__name__)

AMQP_PORT = 5672
# What continues a trace, in the context of a message.
TRACE = 'diffcache_trace'
_LOOK_SECONDS = 3.0

# How oslo.messaging marks the class of an error that came from another
# process.
_REMOTE_SUFFIX = '_Remote'


def _common(error: exceptions.DiffCacheError) -> exceptions.DiffCacheError:
    """Convert an error to one of a class that every process knows."""
    kind = next(cls for cls in type(error).__mro__
                if cls.__module__ == exceptions.__name__)
    return error if kind is type(error) else kind(str(error))


class ContextSerializer(oslo_messaging.Serializer):
    """Adds the request context to another serializer."""

    def __init__(self, entities: oslo_messaging.Serializer):
        self._entities = entities

    def serialize_entity(self, ctxt, entity):
        """Convert an argument or a result to what is sent."""
        return self._entities.serialize_entity(ctxt, entity)

    def deserialize_entity(self, ctxt, entity):
        """Return the argument or result that was sent."""
        return self._entities.deserialize_entity(ctxt, entity)

    def serialize_context(self, ctxt: contexts.RequestContext | dict) -> dict:
        """Convert the context to a dict of plain values."""
        if isinstance(ctxt, dict):
            # It was serialized before, to be signed.
            return ctxt
        values = ctxt.to_rpc()
        if ticket := tracing.ticket():
            values[TRACE] = ticket
        return values

    def deserialize_context(self, ctxt: dict) -> contexts.RequestContext:
        """Return the caller's context."""
        return contexts.RequestContext.from_rpc(ctxt)


def place_locks(conf: cfg.ConfigOpts) -> None:
    """Keep locks between processes in ``[oslo_concurrency] lock_path``.

    oslo.messaging takes one with ``use_queue_manager``, and looks for the
    option in the global configuration alone.
    """
    if path := conf.oslo_concurrency.lock_path:
        lockutils.CONF.set_default('lock_path', path, 'oslo_concurrency')


class Bus:
    """A connection to the message broker that a configuration names."""

    def __init__(self, conf: cfg.ConfigOpts,
                 entities: oslo_messaging.Serializer,
                 url: str | None = None,
                 security: signatures.Security = signatures.Security()):
        """Connect lazily; an unreachable broker is retried in use.

        :param entities: turns arguments and results into plain values
        :param url: the broker, if not the one of the option transport_url
        :param security: signs messages, and verifies them
        :raises InvalidInput: transport_url names no usable broker
        """
        place_locks(conf)
        try:
            address = oslo_messaging.TransportURL.parse(conf, url)
            # Links of sites are thin, and two thirds of a message are names.
            address.query.setdefault('kombu_compression', 'gzip')
            self._transport = oslo_messaging.get_rpc_transport(
                conf, address, allowed_remote_exmods=[exceptions.__name__])
        except (oslo_messaging.DriverLoadFailure,
                oslo_messaging.InvalidTransportURL, ValueError) as error:
            raise exceptions.InvalidInput(
                f'Option transport_url cannot be used: {error}; give it as'
                f' rabbit://USER:PASSWORD@HOST:5672/.') from error
        self._serializer = ContextSerializer(entities)
        self.security = security
        self._reach = Reach(broker_addresses(conf, url))

    def client(self, target: oslo_messaging.Target, timeout: float,
               history: rpc_history.History) -> 'Client':
        """Return a client of the service that listens on a target's topic.

        :param timeout: seconds a call waits for its answer
        :param history: of the interface, for the versions of calls
        """
        return Client(oslo_messaging.get_rpc_client(
            self._transport, target, timeout=timeout,
            serializer=self._serializer, retry=self._reach.attempts),
            self._reach, _Wire(self._serializer, self.security), history)

    def server(self, target: oslo_messaging.Target,
               endpoints: collections.abc.Sequence[object], gate: 'Gate',
               ) -> oslo_messaging.MessageHandlingServer:
        """Return a server that runs the endpoints' methods in threads.

        :param gate: checks each message before a method is called
        """
        return oslo_messaging.get_rpc_server(
            self._transport, target, list(endpoints), executor='threading',
            serializer=self._serializer,
            access_policy=oslo_messaging.ExplicitRPCAccessPolicy,
            server_cls=functools.partial(
                _gated_server, gate,
                _Wire(self._serializer, self.security)))

    def start(self, server: oslo_messaging.MessageHandlingServer) -> None:
        """Start a server as soon as the broker accepts it."""
        self._reach.warn_if_absent()
        server.start()

    def close(self) -> None:
        """Drop the connections."""
        self._transport.cleanup()


class Message(typing.NamedTuple):
    """A call that arrived, with arguments as the methods get them.

    :param sender: who signed it; None if that is unknown
    """

    namespace: str | None
    method: str
    arguments: dict[str, typing.Any]
    sender: signatures.Sender | None


class Gate(typing.Protocol):
    """Decides which messages reach a method."""

    def check(self, message: Message) -> None:
        """Check a message by what it says, so always with the same outcome.

        :raises DiffCacheError: it may not be dispatched; the error goes to
            the caller, signed
        """

    def admit(self, message: Message) -> None:
        """Return if a message that was checked may be dispatched now.

        :raises DiffCacheError: it may not; the error goes to the caller,
            unsigned: the same message may be accepted from another copy of it
        """


class _Wire(typing.NamedTuple):
    """How messages are written, and signed."""

    serializer: ContextSerializer
    security: signatures.Security


class _GatedDispatcher:
    """Has a gate check messages before another dispatcher gets them.

    This is the one place where messages enter a service.
    """

    def __init__(self, gate: Gate, topic: str, wire: _Wire,
                 dispatcher: oslo_messaging.RPCDispatcher) -> None:
        self._gate = gate
        self._topic = topic
        self._serializer, self._security = wire
        self._dispatcher = dispatcher

    def dispatch(self, incoming: typing.Any) -> typing.Any:
        """Check a message, and call the method that it names.

        :raises ExpectedException: the message is refused, or the method
            raised an error, and that is not signed
        """
        with _refusing():
            call = self._call(incoming.message, incoming.ctxt)
            sender = self._security.sender(call)
        try:
            with _refusing():
                message = self._checked(call, sender)
        except oslo_messaging.ExpectedException as error:
            return self._failed(sender, error)
        with _refusing():
            self._gate.admit(message)
        incoming.message['args'] = message.arguments
        incoming.ctxt[contexts.BOUND_HOST] = sender and sender.bound_host
        origin = tracing.open_ticket(incoming.ctxt.get(TRACE))
        try:
            with tracing.continued(origin), _answering(message.method):
                result = self._dispatcher.dispatch(incoming)
        except oslo_messaging.ExpectedException as error:
            return self._failed(sender, error)
        return self._security.answer(sender, result)

    def _failed(self, sender: signatures.Sender | None,
                expected: oslo_messaging.ExpectedException) -> typing.Any:
        """Return the signed error, if the sender expects a signature.

        :raises ExpectedException: it does not
        """
        error = expected.exc_info[1]
        answer = self._security.failure(sender, error)
        if answer is None:
            raise expected
        return answer

    def _call(self, message: typing.Any, ctxt: dict) -> signatures.Call:
        arguments = message.get('args', {})
        namespace, method = message.get('namespace'), message.get('method')
        if not isinstance(arguments, dict) or not isinstance(method, str) \
                or not isinstance(namespace, str | None):
            raise exceptions.InvalidInput(
                'A message names no method, or its arguments have no names.')
        return signatures.Call(self._topic, namespace, method, arguments, ctxt)

    def _checked(self, call: signatures.Call,
                 sender: signatures.Sender | None) -> Message:
        checked = Message(call.namespace, call.method, {
            str(name): self._value(call.method, str(name), argument)
            for name, argument in call.arguments.items()}, sender)
        self._gate.check(checked)
        return checked

    def _value(self, method, name, argument):
        """Return an argument as a method gets it."""
        try:
            return self._serializer.deserialize_entity(None, argument)
        except ovo_exception.IncompatibleObjectVersion as error:
            raise exceptions.ServiceUnavailable(
                f'{method}: its argument {name} is of a version that this'
                f' service does not know; upgrade the service first:'
                f' {error}') from error
        except Exception as error:
            # Whatever a hostile value breaks is the fault of the value.
            raise exceptions.InvalidInput(
                f'{method}: its argument {name} cannot be read'
                f' ({type(error).__name__}: {error}).') from error


@contextlib.contextmanager
def _refusing() -> collections.abc.Iterator[None]:
    """Log the refusal of a message, and have it go to the caller."""
    try:
        yield
    except exceptions.DiffCacheError as error:
        LOG.warning('Refused a message: %s', logs.brief(error))
        raise oslo_messaging.ExpectedException() from error


@contextlib.contextmanager
def _answering(method: str) -> collections.abc.Iterator[None]:
    """Have an error of a method go to the caller.

    The suite's own errors leave no trace in the log: they are answers. Those
    that a module made for itself go back as what they derive from in
    ``exceptions``, the one module that callers take errors of. Anything else
    is logged here, where it can be looked into, and reaches the caller as
    ServiceUnavailable.
    """
    try:
        with tracing.span('rpc', method=method):
            yield
    except exceptions.DiffCacheError as error:
        raise _expected(_common(error)) from error
    except oslo_messaging.RPCDispatcherError:
        raise
    except Exception as error:
        LOG.exception('%s failed', method)
        raise _expected(exceptions.ServiceUnavailable(
            f'{method} failed with {type(error).__name__}; the log of the'
            f' service has the details.')) from error


def _expected(error: exceptions.DiffCacheError
              ) -> oslo_messaging.ExpectedException:
    """Return what has oslo.messaging send an error, and not log it."""
    try:
        raise error
    except exceptions.DiffCacheError:
        return oslo_messaging.ExpectedException()


def _gated_server(gate, wire, transport, target, dispatcher, executor):
    return rpc_server.RPCServer(
        transport, target,
        _GatedDispatcher(gate, target.topic, wire, dispatcher), executor)


class Reach:
    """Checks whether the broker can be reached at all.

    oslo.messaging waits for the broker for ever before its first call, no
    matter what timeout the call has. So before each call, until one was
    answered, this connects to the broker's port. Later calls are bounded by
    their timeout and by :attr:`attempts`.
    """

    def __init__(self, addresses: list[tuple[str, int]]):
        """Create it for the brokers of a transport URL.

        :param addresses: host and port of every broker; none if messages
            stay in this process
        """
        self._addresses = addresses
        self._confirmed = not addresses

    @property
    def attempts(self) -> int:
        """Times to try to send again: every broker of a cluster once."""
        return max(2, len(self._addresses))

    def confirm(self) -> None:
        """Note that a call was answered."""
        self._confirmed = True

    def check(self) -> None:
        """Check the broker, unless a call was answered before.

        :raises ServiceUnavailable: no address accepts connections
        """
        if self._confirmed or any(map(_is_listening, self._addresses)):
            return
        names = ', '.join(f'{host}:{port}' for host, port in self._addresses)
        raise exceptions.ServiceUnavailable(
            f'No message broker listens at {names}; check that it runs, and'
            f' the option transport_url.')

    def warn_if_absent(self) -> None:
        """Log a warning if a server that starts now has to wait."""
        try:
            self.check()
        except exceptions.ServiceUnavailable as error:
            LOG.warning('Waiting for the message broker: %s', error)


def _is_listening(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, _LOOK_SECONDS).close()
    except OSError:
        return False
    return True


def broker_addresses(conf: cfg.ConfigOpts, url: str | None
                     ) -> list[tuple[str, int]]:
    """Return host and port of each broker of a URL, or of transport_url.

    :returns: none if messages stay in this process
    """
    parsed = oslo_messaging.TransportURL.parse(conf, url)
    if parsed.transport != 'rabbit':
        return []
    return [(host.hostname or 'localhost', host.port or AMQP_PORT)
            for host in parsed.hosts] or [('localhost', AMQP_PORT)]


class Client:
    """Calls methods of one service; errors are those of the suite."""

    def __init__(self, client: oslo_messaging.RPCClient, reach: 'Reach',
                 wire: _Wire, history: rpc_history.History):
        self._client = client
        self._reach = reach
        self._wire = wire
        self._history = history

    def prepared(self, **changes: typing.Any) -> 'Client':
        """Return a client with another topic or timeout.

        The arguments are those of oslo_messaging.RPCClient.prepare.
        """
        return Client(self._client.prepare(**changes), self._reach,
                      self._wire, self._history)

    def call(self, ctxt: contexts.RequestContext, method: str,
             **arguments: typing.Any) -> typing.Any:
        """Call and wait for the result.

        :raises ServiceUnavailable: no answer, or the service failed
        :raises DiffCacheError: what the method raised
        """
        self._reach.check()
        signed, values, nonce = self._signed(ctxt, method, arguments)
        try:
            answer = self._versioned(method, values).call(
                signed, method, **values)
            self._reach.confirm()
        except exceptions.DiffCacheError as error:
            if nonce is not None and self._wire.security.believes_only_signed:
                # A client of the broker may have sent it.
                raise self._unavailable(method, exceptions.Forbidden(
                    f'an error without a signature: {error}')) from None
            raise _local(error) from None
        except messaging_exceptions.MessagingException as error:
            raise self._unavailable(method, error) from error
        if nonce is None:
            return answer
        return self._result(method, nonce, answer)

    def cast(self, ctxt: contexts.RequestContext, method: str,
             **arguments: typing.Any) -> None:
        """Send without waiting; the message may get lost.

        :raises ServiceUnavailable: the broker cannot be reached
        """
        self._reach.check()
        signed, values, _nonce = self._signed(ctxt, method, arguments)
        try:
            self._versioned(method, values).cast(signed, method, **values)
        except messaging_exceptions.MessagingException as error:
            raise self._unavailable(method, error) from error

    def _versioned(self, method, arguments):
        """Return a client that sends the version that a call needs."""
        return self._client.prepare(
            version=self._history.needed(method, arguments))

    def _signed(self, ctxt, method, arguments):
        """Return context and arguments to send, and the signature's nonce."""
        serializer, security = self._wire
        if security.key is None:
            return ctxt, arguments, None
        target = self._client.target
        plain = serializer.serialize_context(ctxt)
        values = {name: serializer.serialize_entity(ctxt, value)
                  for name, value in arguments.items()}
        envelope = signatures.sign_call(security.key, signatures.Call(
            target.topic, target.namespace, method, values, plain))
        return ({**plain, signatures.FIELD: envelope._asdict()}, values,
                envelope.nonce)

    def _result(self, method, nonce, answer):
        serializer, security = self._wire
        try:
            result = security.result(self._client.target.topic, nonce, answer)
        except exceptions.Forbidden as error:
            raise self._unavailable(method, error) from error
        if result is answer:
            return answer
        if isinstance(result, exceptions.DiffCacheError):
            raise result
        return serializer.deserialize_entity(None, result)

    def _unavailable(self, method: str, error: Exception
                     ) -> exceptions.ServiceUnavailable:
        topic = self._client.target.topic
        if isinstance(error, oslo_messaging.MessagingTimeout):
            reason = 'no answer in time'
        else:
            reason = str(error)
        return exceptions.ServiceUnavailable(
            f'{method} at {topic}: {reason}; check that service, its log and'
            f' the message broker.')


def _local(error: exceptions.DiffCacheError) -> exceptions.DiffCacheError:
    """Return an error as it was raised, without the remote traceback."""
    kind = next(cls for cls in type(error).__mro__
                if not cls.__name__.endswith(_REMOTE_SUFFIX))
    return kind(*error.args)
