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
"""Run a service until a signal stops it."""

import os
import signal
import socket
import threading
import time

from oslo_config import cfg
from oslo_log import log
from oslo_service import backend

# Before anything of oslo.service is loaded that depends on the choice.
backend.init_backend(backend.BackendType.THREADING)

from oslo_service import opts as service_opts  # noqa: E402
from oslo_service import service  # noqa: E402

LOG = log.getLogger(__name__)

_START_GRACE_SECONDS = 2.0
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Service(service.Service):
    """Base class of all services of the suite.

    Subclasses build what they need in :meth:`start`, not when they are
    constructed, because with several workers the construction happens before
    the fork.
    """

    def __init__(self, conf: cfg.ConfigOpts):
        super().__init__()
        self.conf = conf


def run(conf: cfg.ConfigOpts, instance: Service, workers: int = 1) -> int:
    """Run a service in this process, or in workers, until SIGTERM or SIGINT.

    SIGHUP reads the configuration files again and changes the options that
    can change while running. A stop that takes longer than the option
    graceful_shutdown_timeout is cut short.

    :returns: the exit code of the process
    """
    service_opts.register_service_opts(conf)
    if workers > 1:
        launcher = service.launch(conf, instance, workers=workers,
                                  restart_method='mutate')
        return launcher.wait() or 0
    return _run_here(conf, instance)


def _run_here(conf: cfg.ConfigOpts, instance: Service) -> int:
    with _Events(instance) as events:
        return _follow(conf, instance, events)


class _Events:
    """What happens to a service: signals, and the end of its start.

    Signals come through a socket (:func:`signal.set_wakeup_fd`), because a
    main thread that waits for a lock does not notice one that arrives just
    before the wait begins, or that another thread is chosen to take.
    """

    STARTED = 0

    def __init__(self, instance: Service):
        self._instance = instance
        self._error: BaseException | None = None
        self._reader, self._writer = socket.socketpair()

    def __enter__(self) -> '_Events':
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno())
        # Handlers have nothing to do, but must be, so that nothing else is
        # done.
        self._handlers = {
            number: signal.signal(number, lambda _number, _frame: None)
            for number in (*STOP_SIGNALS, signal.SIGHUP)}
        # In a thread, because it may wait for a broker that is down for hours.
        self._starter = threading.Thread(target=self._start, daemon=True,
                                         name='start')
        self._starter.start()
        return self

    def __exit__(self, *_exception) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        # A service that is still starting reports to this socket; it
        # goes with the process.
        if not self._starter.is_alive():
            self._reader.close()
            self._writer.close()

    def _start(self) -> None:
        try:
            self._instance.start()
        except BaseException as error:
            # The thread's edge: raised again in the main thread.
            self._error = error
        self._writer.send(bytes([self.STARTED]))

    def next(self, timeout: float | None = None) -> int | None:
        """Wait for the next event.

        :param timeout: seconds, or None to wait for as long as it takes
        :returns: the number of a signal, STARTED, or None after the timeout
        :raises BaseException: what ended the start
        """
        self._reader.settimeout(timeout)
        try:
            event = self._reader.recv(1)[0]
        except TimeoutError:
            return None
        if event == self.STARTED and self._error is not None:
            raise self._error
        return event


def _follow(conf, instance, events):
    """Handle signals until one requests a stop."""
    started = False
    while True:
        event = events.next()
        if event == events.STARTED:
            started = True
        elif event in STOP_SIGNALS:
            LOG.info('%s: stopping', signal.Signals(event).name)
            if started or _gets_started(events):
                _stop(conf, instance)
            return 0
        elif event == signal.SIGHUP:
            LOG.info('SIGHUP: reloading the configuration files')
            _mutate(conf)


def _gets_started(events):
    """Wait for a service to start before it stops; return whether it did.

    If it does it can be stopped in order. If not it is waiting for something,
    and has nothing yet that would need an orderly end.
    """
    deadline = time.monotonic() + _START_GRACE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        if events.next(left) == events.STARTED:
            return True
    return False


def _mutate(conf: cfg.ConfigOpts) -> None:
    try:
        conf.mutate_config_files()
    except cfg.Error as error:
        LOG.error('Could not reload the configuration, keeping the previous'
                  ' one: %s', error)


def _stop(conf: cfg.ConfigOpts, instance: Service) -> None:
    def give_up(_number, _frame):
        LOG.error('Not stopped within %s s (graceful_shutdown_timeout); '
                  'exiting at once', conf.graceful_shutdown_timeout)
        os._exit(1)

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(conf.graceful_shutdown_timeout)
    try:
        instance.stop()
        instance.wait()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
