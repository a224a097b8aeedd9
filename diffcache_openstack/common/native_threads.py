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
"""Calls that may wait, in processes of which one thread runs everything.

Nova up to 2026.1, and Glance up to 2026.1 unless it is a WSGI application,
run under eventlet: while one call waits for a file or for QEMU, nothing else
of the process runs. Such calls go through eventlet's native threads. In other
processes they are made directly.
"""

import collections.abc
import concurrent.futures
import functools
import importlib
import sys
import threading
import typing

from diffcache_openstack.common import exceptions

# All calls of libvirt share eventlet's threads, 20 by default.
AT_ONCE = 5

_Result = typing.TypeVar('_Result')


def is_patched() -> bool:
    """Return whether eventlet runs this process's threads."""
    patcher = sys.modules.get('eventlet.patcher')
    return patcher is not None and patcher.is_monkey_patched('thread')


def call(seconds: float, function: collections.abc.Callable[..., _Result],
         *args: typing.Any) -> _Result:
    """Call a function that may wait; return what it returns.

    :param seconds: time limit under eventlet. The function is not ended by
        it, and keeps its thread until it returns
    :raises ServiceUnavailable: it did not return in time
    """
    if not is_patched():
        return function(*args)
    free = _free_threads()
    if not free.acquire(timeout=seconds):
        raise _late(seconds, function)
    future: concurrent.futures.Future[_Result] = concurrent.futures.Future()

    def run() -> None:
        tpool = importlib.import_module('eventlet.tpool')
        try:
            future.set_result(tpool.execute(function, *args))
        except BaseException as error:
            future.set_exception(error)
        finally:
            free.release()

    threading.Thread(target=run, daemon=True).start()
    done, _ = concurrent.futures.wait([future], seconds)
    if not done:
        raise _late(seconds, function)
    return future.result()


@functools.cache
def _free_threads() -> threading.BoundedSemaphore:
    # Not when this is imported, which may be before eventlet patches.
    return threading.BoundedSemaphore(AT_ONCE)


def _late(seconds: float, function: collections.abc.Callable[..., object]
          ) -> exceptions.ServiceUnavailable:
    name = getattr(function, '__name__', repr(function))
    return exceptions.ServiceUnavailable(
        f'{name} did not return within {seconds:.0f} s; check the storage or'
        f' the service that it waits for.')
