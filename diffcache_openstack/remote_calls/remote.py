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
"""Remote interfaces: each method is declared once, in the class of its client.

The declaration has the name, the documentation, the types of the arguments and
the roles that may call it. From it come the message that the client sends, the
check that it passes at the service (:mod:`.gate`), and the version of the
interface that it needs.
"""

import collections.abc
import dataclasses
import functools
import inspect
import typing

from oslo_config import cfg
import oslo_messaging
from oslo_versionedobjects import fields as oslo_fields

from diffcache_openstack.common import exceptions
from diffcache_openstack.common import messaging
from diffcache_openstack.common import rpc_history
from diffcache_openstack.common.signing import host_keys
from diffcache_openstack.objects import fields

CONDUCTOR_TOPIC = 'diffcache-conductor'
# Of their own: a heartbeat waits for no other call.
HEARTBEAT_TOPIC = 'diffcache-conductor-heartbeats'
AGENT_TOPIC = 'diffcache-agent'

CONTROLLER = frozenset({host_keys.CONTROLLER})
REPOSITORY = frozenset({host_keys.REPOSITORY, host_keys.CONTROLLER})
HOSTS = frozenset({host_keys.COMPUTE}) | REPOSITORY
CINDER = frozenset({host_keys.CINDER, host_keys.CONTROLLER})
# Without a signature, too: nothing is changed, and nothing secret returned.
ALL: frozenset[str] = frozenset()

FIRST = '1.0'

# What a plan takes beside the solver's time limit: reading, writing, and
# waiting for a round that another conductor is in.
PLANNING_SLACK_SECONDS = 60

Function = typing.TypeVar('Function', bound=collections.abc.Callable)
# Names of the hosts that the arguments of a call speak for.
Speakers = collections.abc.Callable[[dict], collections.abc.Iterable[str]]
# Arguments of oslo_messaging.RPCClient.prepare, by the configuration.
Changes = collections.abc.Callable[[cfg.ConfigOpts], dict[str, typing.Any]]


def agent_topic(host: str) -> str:
    """Return the topic that a host's agent listens on."""
    return f'{AGENT_TOPIC}.{host}'


def _named_host(arguments: dict) -> list[str]:
    """Return the host that the argument ``host`` is, or describes."""
    host = arguments.get('host')
    return [] if host is None else [getattr(host, 'name', host)]


def heartbeat_topic(_conf: cfg.ConfigOpts) -> dict[str, typing.Any]:
    """Return how a client sends a heartbeat."""
    return {'topic': HEARTBEAT_TOPIC}


def solver_runs(count: int) -> Changes:
    """Return how a client waits for a number of runs of the solver."""
    return lambda conf: {'timeout': count * conf.planner.time_limit
                         + PLANNING_SLACK_SECONDS}


@dataclasses.dataclass(frozen=True)
class Method:
    """A method of a remote interface.

    :param callers: roles that may call it; none if all may, unsigned
    :param arguments: by name; those that are nullable may be left out
    :param changes: whether a call changes state, so that none is accepted
        twice
    :param speakers: the hosts that the arguments speak for, each of which has
        to be the caller, unless that is a controller
    :param since: the version of the interface that it came with
    :param later: versions of the interface that added an argument, by name
    """

    callers: frozenset[str]
    arguments: dict[str, oslo_fields.Field]
    changes: bool = True
    speakers: Speakers = _named_host
    since: str = FIRST
    later: dict[str, str] = dataclasses.field(default_factory=dict)

    def check(self, name: str, arguments: dict) -> None:
        """Check the arguments of a call.

        :param name: of the method, for the message
        :raises InvalidInput: one is missing, unknown, or not as declared
        """
        for unknown in set(arguments) - set(self.arguments):
            raise exceptions.InvalidInput(
                f'{name} has no argument {fields.shortened(unknown)}.')
        for argument, field in self.arguments.items():
            try:
                field.coerce(None, argument, arguments.get(argument))
            except (ValueError, TypeError) as error:
                raise exceptions.InvalidInput(
                    f'{name} was called with an unusable argument:'
                    f' {error}.') from error


# By namespace and name.
Table = dict[tuple[str | None, str], Method]


def method(callers: frozenset[str],
           arguments: dict[str, oslo_fields.Field], **options: typing.Any
           ) -> collections.abc.Callable[[Function], Function]:
    """Declare a method whose client has code of its own.

    The parameters are those of :class:`Method`.
    """
    def declare(function):
        function.declared = Method(callers, arguments, **options)
        return function

    return declare


def call(callers: frozenset[str], arguments: dict[str, oslo_fields.Field],
         *, prepare: Changes | None = None, **options: typing.Any
         ) -> collections.abc.Callable[[Function], Function]:
    """Declare a method that is called with its arguments as they are.

    An argument that has a default is sent if it has another value, so that
    a service without the argument answers.

    :param prepare: how the client that sends it differs; None for not at all
    """
    return _sender('call', prepare, method(callers, arguments, **options))


def cast(callers: frozenset[str], arguments: dict[str, oslo_fields.Field],
         **options: typing.Any
         ) -> collections.abc.Callable[[Function], Function]:
    """Declare a method that is sent without waiting; see :func:`call`."""
    return _sender('cast', None, method(callers, arguments, **options))


def _sender(send, prepare, declare):
    def replace(function):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def answer(self, ctxt, *args, **kwargs):
            arguments = _to_send(
                signature, signature.bind(self, ctxt, *args, **kwargs))
            client = self.prepared(arguments, prepare)
            return getattr(client, send)(ctxt, function.__name__, **arguments)

        return declare(answer)

    return replace


def _to_send(signature, bound):
    """Return the arguments of a call: lists, and no defaults."""
    _self, _context, *parameters = signature.parameters.values()
    return {
        each.name: _plain(bound.arguments[each.name]) for each in parameters
        if bound.arguments.get(each.name, each.default) != each.default}


def _plain(value):
    if isinstance(value, collections.abc.Collection) \
            and not isinstance(value, str | dict):
        return list(value)
    return value


class API:
    """Client of a remote interface of the conductor.

    Its methods raise ServiceUnavailable if there is no answer.
    """

    TOPIC = CONDUCTOR_TOPIC
    NAMESPACE: str | None = None
    METHODS: dict[str, Method]
    HISTORY: rpc_history.History

    def __init_subclass__(cls) -> None:
        # A subclass may override a method; its declaration stays.
        cls.METHODS = {
            name: member.declared for each in reversed(cls.__mro__)
            for name, member in vars(each).items()
            if hasattr(member, 'declared')}
        added: dict[str, list[str]] = {}
        for name, each in cls.METHODS.items():
            added.setdefault(each.since, []).append(name)
            for argument, version in each.later.items():
                added.setdefault(version, []).append(f'{name}.{argument}')
        cls.HISTORY = rpc_history.History(added or {FIRST: []})

    def __init__(self, bus: messaging.Bus, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._connect(bus, conf.conductor.rpc_timeout)

    def _connect(self, bus, timeout, exchange=None):
        self._client = bus.client(
            oslo_messaging.Target(exchange=exchange, topic=self.TOPIC,
                                  namespace=self.NAMESPACE),
            timeout, self.HISTORY)

    @classmethod
    def target(cls) -> oslo_messaging.Target:
        """Return the target of the endpoints that answer."""
        return oslo_messaging.Target(namespace=cls.NAMESPACE,
                                     version=cls.HISTORY.latest)

    @classmethod
    def table(cls) -> Table:
        """Return the declared methods."""
        return {(cls.NAMESPACE, name): each
                for name, each in cls.METHODS.items()}

    def prepared(self, arguments: dict[str, typing.Any],
                 prepare: Changes | None) -> messaging.Client:
        """Return the client that sends a call with these arguments."""
        if prepare is None:
            return self._client
        return self._client.prepared(**prepare(self._conf))


class OutsideAPI(API):
    """Client in a process that has no options of the suite."""

    def __init__(self, bus: messaging.Bus, timeout: float,
                 exchange: str | None = None) -> None:
        """Create a client.

        :param timeout: seconds a call waits for its answer
        :param exchange: the conductor's control_exchange, if not that of
            this process
        """
        self._connect(bus, timeout, exchange)


class HostAPI(API):
    """Client of a remote interface of agents.

    ``host`` is the name of the host whose agent is meant. Methods raise
    ServiceUnavailable if it does not answer.
    """

    TOPIC = AGENT_TOPIC

    def prepared(self, arguments: dict[str, typing.Any],
                 prepare: Changes | None) -> messaging.Client:
        """Return the client for a host, which it takes out of arguments."""
        changes = {} if prepare is None else prepare(self._conf)
        return self._client.prepared(
            topic=agent_topic(arguments.pop('host')), **changes)
