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

The extension module raises its own exception types, which say what
happened; what that means for the caller (permanent or retryable) is decided
here, in one table.
"""

import contextlib
from typing import Iterator

from diffcache_openstack import _native
from diffcache_openstack.common import exceptions

_MEANING = {
    'AlreadyInFlight': exceptions.RetryableError,
    'BaseMismatch': exceptions.BaseMismatch,
    'Cancelled': exceptions.Cancelled,
    'FormatError': exceptions.FormatError,
    'IntegrityError': exceptions.IntegrityError,
    'Interrupted': exceptions.RetryableError,
    'InvalidInput': exceptions.InvalidInput,
    'NoSpace': exceptions.NoSpace,
    'NotFound': exceptions.NotFound,
    'ObjectMissing': exceptions.ObjectMissing,
    'PeerRefused': exceptions.PeerRefused,
    'PeerUnavailable': exceptions.PeerUnavailable,
    'PeerUntrusted': exceptions.PeerUntrusted,
    'SourceUnavailable': exceptions.PeerUnavailable,
}


#: What is wrong with a file that was read, which the caller knows best.
_ABOUT_INPUT = (exceptions.FormatError, exceptions.IntegrityError,
                exceptions.InvalidInput)


@contextlib.contextmanager
def translated(about: str = '') -> Iterator[None]:
    """Raise :mod:`diffcache_openstack.common.exceptions` for native errors.

    A native error with no entry in the table is a plain permanent error:
    nothing is known that would make another try succeed.

    :param about: the file that is read, which errors about what is in it
        name
    """
    try:
        yield
    except _native.NativeError as exc:
        meaning = _MEANING.get(type(exc).__name__, exceptions.PermanentError)
        message = str(exc)
        if issubclass(meaning, _ABOUT_INPUT) and not message.startswith(about):
            message = f'{about}: {message}'
        raise meaning(message) from exc
