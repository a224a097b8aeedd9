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
"""Errors of the whole suite.

Every error is either permanent (the same call fails again until an operator
or user acts) or retryable (the same call may succeed later, or from
another source). Callers decide by type, never by message. A message names
the object concerned and the next step.
"""

import re


class DiffCacheError(Exception):
    """Base of every error this suite raises on purpose."""


class PermanentError(DiffCacheError):
    """A retry fails again until an operator or user acts."""


class RetryableError(DiffCacheError):
    """The same call may succeed later or from another source."""


class NotFound(PermanentError):
    """An object that the caller named does not exist."""


class InvalidInput(PermanentError):
    """The caller's input cannot be used; the message names the field."""


class NotConfigured(InvalidInput):
    """A group of options does not suffice for the request."""


class Forbidden(PermanentError):
    """Another service refused a call: the user has no right to it."""


class QuotaExceeded(PermanentError):
    """A project's quota does not allow what was asked."""


class Conflict(PermanentError):
    """The caller's description contradicts what is registered."""


class DownloadCheaper(PermanentError):
    """The caller's own download takes fewer bytes than any way here."""


class FormatError(PermanentError):
    """A file violates its format, or has an unknown version."""


class BaseMismatch(PermanentError):
    """A patch was created for another base than the one given."""


class PeerRefused(PermanentError):
    """A peer refused our credentials."""


class PeerUntrusted(PeerRefused):
    """A peer and this host do not accept each other's certificates."""


class IntegrityError(RetryableError):
    """Bytes do not match their hash; another source may serve others."""


class PeerUnavailable(RetryableError):
    """A peer did not answer, or stopped answering."""


class ObjectMissing(RetryableError):
    """A source no longer holds the object it was asked for."""


class NoSpace(RetryableError):
    """The filesystem is full; nothing half-written was left behind."""


class Cancelled(RetryableError):
    """The caller cancelled the operation."""


class Interrupted(RetryableError):
    """This process ends; the operation resumes when it is started again."""


class Busy(RetryableError):
    """Another process or request is doing the same at this moment."""


class LeaseLost(RetryableError):
    """A host did not report a task in time, and has lost it."""


class ServiceUnavailable(RetryableError):
    """A service did not answer in time, or failed while answering."""


def code_of(error: BaseException) -> str:
    """Return the stable code of an error: its class, as ``no_space``.

    Classes of other modules have the code of the class here that they derive
    from; errors that were not raised on purpose have ``internal``.
    """
    for kind in type(error).__mro__:
        if kind.__module__ == __name__ and kind is not DiffCacheError:
            return _code(kind)
    return 'internal'


def of_code(code: str, message: str) -> DiffCacheError:
    """Return the error that has a code; one of a later release is retryable.

    :param code: as :func:`code_of` returns it
    """
    for kind in globals().values():
        if isinstance(kind, type) and issubclass(kind, DiffCacheError) \
                and _code(kind) == code:
            return kind(message)
    return ServiceUnavailable(message)


def _code(kind: type[DiffCacheError]) -> str:
    return re.sub('(?<!^)(?=[A-Z])', '_', kind.__name__).lower()


def is_resumable(error: BaseException) -> bool:
    """Return whether a repeated call should find what this one left."""
    return isinstance(error, (Busy, Interrupted, ServiceUnavailable))
