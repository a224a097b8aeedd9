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
"""The part of librsync's job interface that patches need.

librsync (https://librsync.github.io/) is the library behind the ``rdiff``
program. It is loaded when it is first used, so that a host without it lacks
one codec and nothing else.
"""

import ctypes
import functools
import io
import os
from typing import Callable

from diffcache_openstack.common import exceptions

_SONAME = 'librsync.so.2'
_CHUNK = 1 << 20

_DONE = 0
_BLOCKED = 1
_IO_ERROR = 100
_INPUT_ENDED = 103

_LOG_EMERGENCY = 0


class _Buffers(ctypes.Structure):
    """``rs_buffers_t``."""

    _fields_ = (('next_in', ctypes.c_void_p), ('avail_in', ctypes.c_size_t),
                ('eof_in', ctypes.c_int), ('next_out', ctypes.c_void_p),
                ('avail_out', ctypes.c_size_t))


#: ``rs_copy_cb``: opaque, position, length (in and out), buffer.
_CopyCallback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int64,
    ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_void_p))


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_SONAME)
    except OSError as exc:
        raise exceptions.PermanentError(
            f'The rdiff codec needs {_SONAME}, which is not installed; '
            'install the package librsync2.') from exc
    job = ctypes.c_void_p
    library.rs_strerror.restype = ctypes.c_char_p
    library.rs_sig_args.argtypes = (
        ctypes.c_int64, ctypes.POINTER(ctypes.c_int),
        ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
    library.rs_sig_begin.argtypes = (
        ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    library.rs_sig_begin.restype = job
    library.rs_loadsig_begin.argtypes = (ctypes.POINTER(ctypes.c_void_p),)
    library.rs_loadsig_begin.restype = job
    library.rs_build_hash_table.argtypes = (ctypes.c_void_p,)
    library.rs_delta_begin.argtypes = (ctypes.c_void_p,)
    library.rs_delta_begin.restype = job
    library.rs_patch_begin.argtypes = (_CopyCallback, ctypes.c_void_p)
    library.rs_patch_begin.restype = job
    library.rs_free_sumset.argtypes = (ctypes.c_void_p,)
    library.rs_free_sumset.restype = None
    library.rs_job_free.argtypes = (job,)
    library.rs_job_iter.argtypes = (job, ctypes.POINTER(_Buffers))
    # Its messages go to stderr, which is not ours; results say enough.
    library.rs_trace_set_level(_LOG_EMERGENCY)
    return library


def _check(result: int, doing: str) -> None:
    if result != _DONE:
        reason = _library().rs_strerror(result).decode()
        raise exceptions.FormatError(
            f'librsync failed {doing}: {reason}; the input is damaged or of '
            'another kind.')


def _run(job: int, source: io.RawIOBase | io.BytesIO,
         sink: Callable[[memoryview], object], doing: str) -> None:
    """Drive ``job`` over ``source``, handing its output to ``sink``."""
    library = _library()
    given = ctypes.create_string_buffer(_CHUNK)
    given_view = memoryview(given).cast('B')
    made = ctypes.create_string_buffer(_CHUNK)
    made_view = memoryview(made).cast('B')
    buffers = _Buffers(next_in=ctypes.addressof(given))
    result = _BLOCKED
    try:
        while result == _BLOCKED:
            if not buffers.avail_in and not buffers.eof_in:
                count = source.readinto(given_view)
                buffers.next_in = ctypes.addressof(given)
                buffers.avail_in = count
                buffers.eof_in = count == 0
            buffers.next_out = ctypes.addressof(made)
            buffers.avail_out = _CHUNK
            result = library.rs_job_iter(job, ctypes.byref(buffers))
            sink(made_view[:_CHUNK - buffers.avail_out])
    finally:
        library.rs_job_free(job)
    _check(result, doing)


class Signature:
    """The block sums of a base, as ``rdiff signature`` would choose them.

    Memory is proportional to the square root of the base's size: librsync
    grows the block with it. A context manager: leaving it frees the sums.
    """

    def __init__(self, source: io.RawIOBase, size: int) -> None:
        """Read ``source``, ``size`` bytes in all, to its end."""
        library = _library()
        magic = ctypes.c_int(0)
        block = ctypes.c_size_t(0)
        strong = ctypes.c_size_t(0)
        _check(library.rs_sig_args(
            size, ctypes.byref(magic), ctypes.byref(block),
            ctypes.byref(strong)), 'choosing a block size')
        sums = io.BytesIO()
        _run(library.rs_sig_begin(block, strong, magic), source, sums.write,
             'signing the base')
        sums.seek(0)
        self._sums = ctypes.c_void_p()
        _run(library.rs_loadsig_begin(ctypes.byref(self._sums)), sums, len,
             'loading the signature')
        _check(library.rs_build_hash_table(self._sums),
               'indexing the signature')

    def delta(self, target: io.RawIOBase,
              sink: Callable[[memoryview], object]) -> None:
        """Write the delta that builds ``target`` to ``sink``."""
        _run(_library().rs_delta_begin(self._sums), target, sink,
             'making the delta')

    def __enter__(self) -> 'Signature':
        return self

    def __exit__(self, *_exc_info: object) -> None:
        _library().rs_free_sumset(self._sums)


def patch(base: io.FileIO, delta: io.RawIOBase,
          sink: Callable[[memoryview], object]) -> None:
    """Write the result of applying ``delta`` to ``base`` to ``sink``.

    :raises FormatError: the delta is damaged, or copies from beyond the
        base's end
    :raises OSError: the base cannot be read
    """
    failures: list[OSError] = []

    def copy(_opaque, position, length, buffer):
        wanted = length[0]
        view = (ctypes.c_char * wanted).from_address(buffer[0])
        try:
            length[0] = os.preadv(base.fileno(), [view], position)
        except OSError as exc:
            failures.append(exc)
            return _IO_ERROR
        return _DONE if length[0] else _INPUT_ENDED

    callback = _CopyCallback(copy)
    try:
        _run(_library().rs_patch_begin(callback, None), delta, sink,
             'applying the delta')
    except exceptions.FormatError:
        if failures:
            raise failures[0]
        raise
