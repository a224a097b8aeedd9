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
"""Running a service until it is told to stop."""

import os
import queue
import signal
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
    """What all services of the suite have in common.

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
    # A handler may run between any two bytecodes; putting on this queue is
    # the one thing that is safe to do there.
    events: queue.SimpleQueue = queue.SimpleQueue()
    signals = (*STOP_SIGNALS, signal.SIGHUP)
    before = {number: signal.signal(
        number, lambda number, _frame: events.put(number))
        for number in signals}
    try:
        return _follow(conf, instance, events)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(conf, instance, events):
    """Start, then do what signals ask for until one asks to stop."""
    # In a thread, because it may wait for a broker that is down for hours.
    threading.Thread(target=_start, args=(instance, events), daemon=True,
                     name='start').start()
    started = False
    while True:
        event = events.get()
        if isinstance(event, BaseException):
            raise event
        if event is instance:
            started = True
        elif event in STOP_SIGNALS:
            LOG.info('%s: stopping', signal.Signals(event).name)
            if started or _gets_started(instance, events):
                _stop(conf, instance)
            return 0
        else:
            LOG.info('SIGHUP: reading the configuration files again')
            _mutate(conf)


def _gets_started(instance, events):
    """Whether a service that is to stop gets done with starting first.

    If it does it can be stopped in order. If not it is waiting for something,
    and has nothing yet that would need an orderly end.
    """
    deadline = time.monotonic() + _START_GRACE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left)
        except queue.Empty:
            break
        if event is instance:
            return True
        if isinstance(event, BaseException):
            raise event
    return False


def _start(instance, events):
    try:
        instance.start()
    except BaseException as error:
        # The thread's edge: raised again in the main thread.
        events.put(error)
    else:
        events.put(instance)


def _mutate(conf: cfg.ConfigOpts) -> None:
    try:
        conf.mutate_config_files()
    except cfg.Error as error:
        LOG.error('The configuration stays as it is: %s', error)


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
