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
"""The native core's errors as this suite's errors.

The extension module raises its own exception types, one for each kind in
``native/core/src/retry.rs``, the table that says which kinds are retryable;
a test asserts that the types here agree.
"""

import contextlib
from typing import Iterator

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions

#: The kind of error that is the operating system's own.
SYSTEM_ERROR = 'OSError'
_MEANING = {'AlreadyInFlight': exceptions.RetryableError,
            'BaseMismatch': exceptions.BaseMismatch,
            'Cancelled': exceptions.Cancelled,
            'FormatError': exceptions.FormatError,
            'IntegrityError': exceptions.IntegrityError,
            'Interrupted': exceptions.RetryableError,
            'InvalidInput': exceptions.InvalidInput,
            'NativeError': exceptions.PermanentError,
            'NoSpace': exceptions.NoSpace,
            'ObjectMissing': exceptions.ObjectMissing,
            'PeerRefused': exceptions.PeerRefused,
            'PeerUnavailable': exceptions.PeerUnavailable,
            'PeerUntrusted': exceptions.PeerUntrusted,
            'SourceUnavailable': exceptions.PeerUnavailable}


#: What is wrong with a file that was read, which the caller knows best.
_ABOUT_INPUT = (exceptions.FormatError, exceptions.IntegrityError,
                exceptions.InvalidInput)


def meaning_of(kind: str) -> type[exceptions.DiffCacheError]:
    """Return the type of error for a kind of native error.

    A kind with no entry in the table is a plain permanent error: nothing is
    known that would make another attempt succeed.
    """
    return _MEANING.get(kind, exceptions.PermanentError)


@contextlib.contextmanager
def translated(about: str = '') -> Iterator[None]:
    """Raise :mod:`diffcache_openstack.common.exceptions` for native errors.

    See :func:`meaning_of`.

    :param about: the file that is read, which errors about what is in it
        name
    """
    try:
        yield
    except _native.NativeError as exc:
        meaning = meaning_of(type(exc).__name__)
        message = str(exc)
        if issubclass(meaning, _ABOUT_INPUT) and not message.startswith(about):
            message = f'{about}: {message}'
        raise meaning(message) from exc
