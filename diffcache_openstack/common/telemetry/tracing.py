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
"""Traces of requests across services, by osprofiler.

A trace is a tree of spans, work with a start and an end. The trace that a
thread works for is osprofiler's, which has one for each thread, as it has one
destination of spans for each process: :func:`setup` is for processes of one
service, and until it was called nothing here does anything.

A span in another process continues a trace that was signed with a key which
both processes have. All others are ignored.

The client of the local socket, which other projects load, needs this module:
it takes nothing but the standard library until traces are on.
"""

import base64
import collections.abc
import contextlib
import hashlib
import hmac
import importlib.util
import json
import logging
import re
import sys
import typing
import uuid

from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import span_sender

if typing.TYPE_CHECKING:
    from oslo_config import cfg

LOG = logging.getLogger(__name__)

#: Headers of HTTP, as osprofiler names them.
INFO_HEADER = 'X-Trace-Info'
HMAC_HEADER = 'X-Trace-HMAC'
PROJECT = 'diffcache'
# From osprofiler's sample configuration: no secret.
_PUBLIC_KEY = 'SECRET_KEY'
# As many characters as native code passes on.
_LONGEST_TICKET = 512
# Characters of what a span says.
_LONGEST_TEXT = 500
_ID = re.compile(r'[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}', re.ASCII)

WSGI = collections.abc.Callable[..., collections.abc.Iterable[bytes]]


class Origin(typing.NamedTuple):
    """Where in a trace a span begins, and the key that the trace came with."""

    base_id: str
    parent_id: str
    key: str


class Span:
    """Work that is traced, or not."""

    def __init__(self) -> None:
        self.outcome: dict[str, typing.Any] = {}

    def note(self, **facts: typing.Any) -> None:
        """Note facts that are known only at the end."""
        self.outcome.update(facts)


class Times(typing.NamedTuple):
    """Start and end of a span, in seconds since 1970."""

    began: float
    ended: float


# The keys of the process; none while it does not trace.
_keys: tuple[str, ...] = ()


def setup(conf: 'cfg.ConfigOpts', service: str) -> None:
    """Have this process send spans, if its configuration says so.

    :param service: its name, which spans have
    :raises InvalidInput: an option of [profiler] cannot be used, or
        osprofiler is not installed
    """
    global _keys
    if not conf.profiler.enabled:
        return
    keys = tuple(filter(None, map(str.strip,
                                  conf.profiler.hmac_keys.split(','))))
    if not keys or _PUBLIC_KEY in keys:
        raise exceptions.InvalidInput(
            f'[profiler] hmac_keys is empty or has "{_PUBLIC_KEY}", which'
            f' is public; set a secret that Nova and Glance have, too.')
    if importlib.util.find_spec('osprofiler') is None:
        raise exceptions.InvalidInput(
            'For [profiler] enabled, the package osprofiler is missing;'
            ' install it, or do not set it.')
    from osprofiler import notifier
    notifier.set(span_sender.SpanSender(
        conf.agent.host, lambda: _connect(conf, service)).put)
    _keys = keys
    LOG.info('Sending spans of traced requests')


def stop() -> None:
    """Trace nothing any more."""
    global _keys
    _keys = ()


def is_on() -> bool:
    """Return whether this process sends spans."""
    return bool(_keys)


def _connect(conf: 'cfg.ConfigOpts', service: str
             ) -> collections.abc.Callable[[dict], None]:
    """Return what sends a span's start or end; osprofiler logs failures."""
    from osprofiler import notifier
    from osprofiler import opts
    for group, options in opts.list_opts():
        known = conf[group] if group in conf else ()
        conf.register_opts([each for each in options
                            if each.dest not in known], group=group)
    return notifier.create(
        conf.profiler.connection_string, context={}, project=PROJECT,
        service=service, host=conf.agent.host, conf=conf)


def _profiler() -> typing.Any:
    """Return osprofiler's object of this thread; None without a trace.

    Nova and Glance set up osprofiler by themselves, or do not load it.
    """
    module = sys.modules.get('osprofiler.profiler')
    return module.get() if module is not None else None


# -- from one process to another

def headers() -> dict[str, str]:
    """Return headers of HTTP that continue the trace of this thread."""
    signed = _signed()
    return dict(zip((INFO_HEADER, HMAC_HEADER), signed)) if signed else {}


def ticket() -> str | None:
    """Return a text that continues the trace of this thread.

    :returns: None without a trace
    """
    signed = _signed()
    return '.'.join(signed) if signed else None


def _signed() -> tuple[str, str] | None:
    current = _profiler()
    if current is None or not current.hmac_key:
        return None
    document = {'base_id': current.get_base_id(),
                'parent_id': current.get_id()}
    info = base64.urlsafe_b64encode(json.dumps(document).encode()).decode()
    return info, _hmac(info, current.hmac_key)


def _hmac(info: str, key: str) -> str:
    # The algorithm is osprofiler's.
    return hmac.new(key.encode(), info.encode(), hashlib.sha1).hexdigest()


def open_ticket(text: object) -> Origin | None:
    """Return what a text continues; None without a valid signature.

    :param text: untrusted
    """
    if not isinstance(text, str):
        return None
    info, _, signature = text.rpartition('.')
    return verify(info, signature)


def verify(info: str | None, signature: str | None) -> Origin | None:
    """Return what headers continue; None without a valid signature.

    :param info: untrusted, as is the signature
    """
    if not (_keys and info and signature) \
            or len(info) + len(signature) >= _LONGEST_TICKET:
        return None
    given = signature.strip().encode(errors='replace')
    for key in _keys:
        if hmac.compare_digest(given, _hmac(info, key).encode()):
            return _origin(info, key)
    LOG.debug('Ignoring a trace that no key of [profiler] hmac_keys signed')
    return None


def _origin(info: str, key: str) -> Origin | None:
    """Read what was signed, which a client can have written as it likes."""
    try:
        document = json.loads(base64.urlsafe_b64decode(info))
        base_id = document['base_id']
        found = Origin(base_id, document.get('parent_id') or base_id, key)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    ids = found.base_id, found.parent_id
    if all(isinstance(each, str) and _ID.fullmatch(each) for each in ids):
        return found
    return None


# -- in one process

def current() -> Origin | None:
    """Return where in a trace this thread is, for another one to continue."""
    found = _profiler()
    if found is None or not _keys:
        return None
    return Origin(found.get_base_id(), found.get_id(), found.hmac_key)


@contextlib.contextmanager
def continued(origin: Origin | None) -> collections.abc.Iterator[None]:
    """Have this thread work for a trace; None for no trace."""
    if origin is None:
        yield
        return
    from osprofiler import profiler
    profiler.clean()
    profiler.init(origin.key, origin.base_id, origin.parent_id)
    try:
        yield
    finally:
        profiler.clean()


def span(name: str, **facts: typing.Any
         ) -> contextlib.AbstractContextManager[Span]:
    """Trace a block, if its thread works for a trace.

    :param facts: what the work is about; not what is secret
    """
    found = _profiler() if _keys else None
    if found is None:
        return contextlib.nullcontext(Span())
    return _span(found, name, facts)


@contextlib.contextmanager
def _span(profiler: typing.Any, name: str, facts: dict[str, typing.Any]
          ) -> collections.abc.Iterator[Span]:
    traced = Span()
    failure: dict[str, typing.Any] = {}
    profiler.start(name, _started(name, facts))
    try:
        yield traced
    except Exception as error:
        failure = {'etype': type(error).__name__,
                   'message': str(error)[:_LONGEST_TEXT]}
        raise
    finally:
        profiler.stop({**_stopped(traced.outcome), **failure})


# Where each of osprofiler's destinations shows what a span is about.
def _started(name: str, facts: dict[str, typing.Any]) -> dict:
    return {'function': {'name': name, 'args': _words(facts)}}


def _stopped(facts: dict[str, typing.Any]) -> dict:
    return {'function': {'result': _words(facts)}}


def _words(facts: dict[str, typing.Any]) -> str:
    words = ' '.join(f'{name}={value}' for name, value in facts.items())
    return words[:_LONGEST_TEXT]


def report(origin: Origin, name: str, times: Times,
           **facts: typing.Any) -> None:
    """Send a span that has ended already."""
    from osprofiler import notifier
    ids = {'base_id': origin.base_id, 'parent_id': origin.parent_id,
           'trace_id': str(uuid.uuid4())}
    for event, time, info in (('start', times.began, _started(name, facts)),
                              ('stop', times.ended, _stopped({}))):
        notifier.notify({**ids, 'name': f'{name}-{event}', 'info': info,
                         'timestamp': span_sender.timestamp(time)})


class Traced:
    """Continues the traces of requests to a WSGI application."""

    def __init__(self, application: WSGI) -> None:
        self._application = application

    def __call__(self, environ: dict, start_response: typing.Any
                 ) -> collections.abc.Iterable[bytes]:
        """Answer a request."""
        origin = verify(environ.get('HTTP_X_TRACE_INFO'),
                        environ.get('HTTP_X_TRACE_HMAC'))
        if origin is None:
            return self._application(environ, start_response)
        return self._traced(origin, environ, start_response)

    def _traced(self, origin, environ, start_response):
        """Answer within a span, which ends with the answer."""
        with continued(origin), span(
                'wsgi', method=environ.get('REQUEST_METHOD'),
                path=environ.get('PATH_INFO')):
            answer = self._application(environ, start_response)
            try:
                yield from answer
            finally:
                if hasattr(answer, 'close'):
                    answer.close()


def traced(application: WSGI) -> WSGI:
    """Return an application that continues traces, if this process does."""
    return Traced(application) if _keys else application
