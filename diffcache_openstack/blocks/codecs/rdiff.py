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
"""Codec ``rdiff``: deltas of librsync, the codec of the DiffCache paper.

A patch is a plain delta, byte for byte what ``rdiff delta`` writes, and
``rdiff patch`` applies it. That format has fields for neither hashes nor
sizes, so they travel beside it: ``PATCH.json`` holds the hashes of base,
target and delta. With it, every application is verified; without it (a
delta made by the ``rdiff`` program) the hashes are unknown, a delta is
checked for being whole and for copying only from within the base, and a
wrong base of the right size goes unnoticed. :meth:`RdiffCodec.info` says
which, in ``verifiable``.
"""

import contextlib
import dataclasses
import io
import json
import os
import struct
from typing import Any

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks.codecs import librsync
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands
from diffcache_openstack.common import exceptions
from diffcache_openstack.common import files

_MAGIC = b'rs\x026'
_SIDECAR_SUFFIX = '.json'
_SIDECAR_LIMIT = 64 * 1024
_SIDECAR_KEYS = ('patch_hash', 'base_hash', 'target_hash')

_OP_END = 0x00
_OP_LITERAL_LAST_SHORT = 0x40
_OP_LITERAL_LAST = 0x44
_OP_COPY_LAST = 0x54
_WIDTHS = (1, 2, 4, 8)
_INTEGERS = {1: '>B', 2: '>H', 4: '>I', 8: '>Q'}
_LIMIT = 1 << 62

#: librsync's commands count bytes; block counts are given in this unit.
_BLOCK = 4096
_SPARSE = 64 * 1024


class _TooLarge(Exception):
    """A delta has reached its limit."""


@dataclasses.dataclass
class _Totals:
    """What the commands of a delta add up to."""

    copy_commands: int = 0
    copy_bytes: int = 0
    literal_commands: int = 0
    literal_bytes: int = 0
    #: The base must be at least this long, in bytes.
    base_reach: int = 0

    @property
    def target_size(self) -> int:
        return self.copy_bytes + self.literal_bytes


class _DeltaReader:
    """Walks a delta's commands without reading its literals."""

    def __init__(self, stream: io.BufferedReader, size: int,
                 path: str) -> None:
        self._stream = stream
        self._size = size
        self._path = path
        self._position = 0

    def _damaged(self, how: str) -> exceptions.FormatError:
        return exceptions.FormatError(
            f'The rdiff delta {self._path} {how}; fetch or make it again.')

    def _take(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise self._damaged('is truncated')
        self._position += count
        return data

    def _integer(self, width: int) -> int:
        return struct.unpack(_INTEGERS[width], self._take(width))[0]

    def _skip_literal(self, length: int) -> None:
        if length > self._size - self._position:
            raise self._damaged('is truncated')
        self._position += length
        # A seek drops the read buffer; most literals fit in it.
        if length <= _BLOCK:
            self._stream.read(length)
        else:
            self._stream.seek(self._position)

    def totals(self) -> _Totals:
        """Add up the commands to the end mark.

        :raises FormatError: a command is unknown, out of range or cut off
        """
        totals = _Totals()
        if self._take(len(_MAGIC)) != _MAGIC:
            raise self._damaged('has no delta magic')
        while (operation := self._take(1)[0]) != _OP_END:
            if operation <= _OP_LITERAL_LAST:
                self._literal(operation, totals)
            elif operation <= _OP_COPY_LAST:
                self._copy(operation, totals)
            else:
                raise self._damaged(f'has the unknown command {operation}')
            if totals.target_size > _LIMIT:
                raise self._damaged('claims an impossible size')
        return totals

    def _literal(self, operation: int, totals: _Totals) -> None:
        length = operation
        if operation > _OP_LITERAL_LAST_SHORT:
            length = self._integer(
                _WIDTHS[operation - _OP_LITERAL_LAST_SHORT - 1])
        self._skip_literal(length)
        totals.literal_commands += 1
        totals.literal_bytes += length

    def _copy(self, operation: int, totals: _Totals) -> None:
        of_offset, of_length = divmod(operation - _OP_LITERAL_LAST - 1, 4)
        offset = self._integer(_WIDTHS[of_offset])
        length = self._integer(_WIDTHS[of_length])
        totals.copy_commands += 1
        totals.copy_bytes += length
        totals.base_reach = max(totals.base_reach, offset + length)


class _SparseWriter:
    """Writes a stream to a file, leaving runs of zeroes as holes."""

    def __init__(self, stream: io.RawIOBase, limit: int) -> None:
        self._stream = stream
        self._limit = limit
        self.size = 0

    def write(self, data: memoryview) -> None:
        """Append ``data``.

        :raises IntegrityError: more arrives than the delta promised
        """
        if self.size + len(data) > self._limit:
            raise exceptions.IntegrityError(
                'The delta makes more than it promised; fetch it again.')
        for start in range(0, len(data), _SPARSE):
            piece = data[start:start + _SPARSE]
            if piece == _ZEROES[:len(piece)]:
                self._stream.seek(len(piece), os.SEEK_CUR)
            else:
                _write_all(self._stream, piece)
        self.size += len(data)

    def finish(self) -> None:
        """Give the file its size, a hole at the end included."""
        self._stream.truncate(self.size)


_ZEROES = memoryview(bytes(_SPARSE))


def _write_all(stream: io.RawIOBase, data: memoryview) -> None:
    while data:
        data = data[stream.write(data):]


class _Counted(io.RawIOBase):
    """A file that reports what is read of it to a meter."""

    def __init__(self, stream: io.RawIOBase, meter: codec_base.Meter) -> None:
        super().__init__()
        self._stream = stream
        self._meter = meter

    def readinto(self, buffer) -> int:
        count = self._stream.readinto(buffer)
        self._meter.advance(count)
        return count


class RdiffCodec(codec_base.PatchCodec):
    """librsync deltas, interchangeable with the ``rdiff`` program's."""

    name = 'rdiff'

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    def create(self, base: str, target: str, patch: str,
               level: int | None = None,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        """Create a delta; the format does not compress and has no level."""
        return self._create(base, target, patch, _LIMIT, level, progress)

    def create_below(self, base: str, target: str, patch: str, limit: int,
                     level: int | None = None,
                     progress: codec_base.Progress | None = None
                     ) -> codec_base.PatchInfo | None:
        """Stop as soon as the delta has reached the limit."""
        try:
            return self._create(base, target, patch, limit, level, progress)
        except _TooLarge:
            return None

    def _create(self, base: str, target: str, patch: str, limit: int,
                level: int | None, progress: codec_base.Progress | None
                ) -> codec_base.PatchInfo:
        if level is not None:
            raise exceptions.InvalidInput(
                'The rdiff codec does not compress; leave the level out.')
        base_size = operands.check_readable(base, 'base')
        target_size = operands.check_readable(target, 'target')
        for output in (patch, patch + _SIDECAR_SUFFIX):
            operands.check_output(output, base=base, target=target)
        meter = codec_base.Meter(progress, base_size + target_size)
        with (operands.translate_os_errors(patch),
              files.replacing(patch + _SIDECAR_SUFFIX,
                              durable=False) as sidecar,
              files.replacing(patch, durable=False) as delta,
              # They are read for the delta, and again for their hashes.
              operands.unchanged(base, target)):
            _make_delta(base, target, str(delta), limit, meter)
            _write_sidecar(str(sidecar), base, target, str(delta))
            # A delta must never lie beside another delta's hashes.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(patch + _SIDECAR_SUFFIX)
        return self.info(patch)

    def apply(self, base: str, patch: str, output: str,
              progress: codec_base.Progress | None = None
              ) -> codec_base.PatchInfo:
        operands.check_output(output, patch=patch)
        info = self._check(base, patch)
        size = info.target_size or 0
        meter = codec_base.Meter(progress, size)
        with (operands.translate_os_errors(output),
              files.replacing(output, durable=False) as temporary):
            with open(temporary, 'r+b', buffering=0) as stream:
                _apply(base, patch, _SparseWriter(stream, size), meter)
            _verify_target(info, str(temporary), base, patch)
        return info

    def info(self, patch: str) -> codec_base.PatchInfo:
        size = operands.check_readable(patch, 'patch')
        with open(patch, 'rb') as stream:
            totals = _DeltaReader(stream, size, patch).totals()
        hashes = _read_sidecar(patch)
        return codec_base.PatchInfo(
            codec=self.name,
            base_hash=hashes.get('base_hash'),
            target_hash=hashes.get('target_hash'),
            base_size=hashes.get('base_size'),
            target_size=totals.target_size,
            patch_size=size,
            blocks_copied=-(-totals.copy_bytes // _BLOCK),
            blocks_inserted=-(-totals.literal_bytes // _BLOCK),
            details={'block_size': _BLOCK, 'base_reach': totals.base_reach,
                     'copy_commands': totals.copy_commands,
                     'literal_commands': totals.literal_commands,
                     'literal_bytes': totals.literal_bytes,
                     'verifiable': bool(hashes)})

    def verify(self, base: str, patch: str,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        """Check the delta and the base against the hashes beside it.

        Nothing is rebuilt: equal base and delta make an equal target.
        """
        info = self._check(base, patch)
        if info.base_hash is None:
            raise exceptions.InvalidInput(
                f'{patch} cannot be verified: it has no {patch}'
                f'{_SIDECAR_SUFFIX} with the hashes of base and target. It '
                'is whole and fits within the base.')
        if (found := _hash(base)) != info.base_hash:
            raise codec_base.other_base(base, found, patch, info.base_hash)
        return info

    def _check(self, base: str, patch: str) -> codec_base.PatchInfo:
        base_size = operands.check_readable(base, 'base')
        info = self.info(patch)
        if (info.details['base_reach'] > base_size
                or info.base_size not in (None, base_size)):
            raise _mismatch(info, base, patch)
        _check_patch_hash(patch)
        return info


def _hash(path: str) -> str:
    with native_errors.translated():
        return _native.hash_file(path)


def _make_delta(base: str, target: str, delta: str, limit: int,
                meter: codec_base.Meter) -> None:
    with (open(base, 'rb', buffering=0) as source,
          open(target, 'rb', buffering=0) as goal,
          open(delta, 'wb', buffering=0) as stream):
        def sink(data: memoryview) -> None:
            _write_all(stream, data)
            if stream.tell() >= limit:
                raise _TooLarge

        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        with librsync.Signature(_Counted(source, meter), size) as signature:
            signature.delta(_Counted(goal, meter), sink)


def _apply(base: str, patch: str, writer: _SparseWriter,
           meter: codec_base.Meter) -> None:
    def sink(data: memoryview) -> None:
        writer.write(data)
        meter.advance(len(data))

    with (open(base, 'rb', buffering=0) as source,
          open(patch, 'rb', buffering=0) as delta):
        librsync.patch(source, delta, sink)
    writer.finish()


def _verify_target(info: codec_base.PatchInfo, made: str, base: str,
                   patch: str) -> None:
    if info.target_hash is None or _hash(made) == info.target_hash:
        return
    # The delta itself is intact, so the base is not what it was made for.
    raise _mismatch(info, base, patch)


def _mismatch(info: codec_base.PatchInfo, base: str, patch: str
              ) -> exceptions.BaseMismatch:
    found = _hash(base)
    if info.base_hash is not None:
        return codec_base.other_base(base, found, patch, info.base_hash)
    return exceptions.BaseMismatch(
        f'The patch {patch} takes data from a base of at least '
        f'{info.details["base_reach"]} bytes; the base {base} (content id '
        f'{found}) is shorter. Give the image that it was made from.')


def _write_sidecar(path: str, base: str, target: str, delta: str) -> None:
    content = {'codec': RdiffCodec.name, 'patch_hash': _hash(delta),
               'base_hash': _hash(base), 'base_size': os.path.getsize(base),
               'target_hash': _hash(target)}
    with open(path, 'w', encoding='utf-8') as stream:
        json.dump(content, stream, indent=2)
        stream.write('\n')


def _read_sidecar(patch: str) -> dict[str, Any]:
    path = patch + _SIDECAR_SUFFIX
    try:
        with open(path, 'rb') as stream:
            content = json.loads(stream.read(_SIDECAR_LIMIT))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        raise exceptions.FormatError(
            f'{path} is damaged: {exc}; make the patch again.') from exc
    if not (isinstance(content, dict)
            and all(_is_hash(content.get(key)) for key in _SIDECAR_KEYS)
            and isinstance(content.get('base_size'), int)):
        raise exceptions.FormatError(
            f'{path} does not hold the hashes of an rdiff patch; make the '
            'patch again.')
    return content


def _is_hash(value: object) -> bool:
    return (isinstance(value, str) and len(value) == 64
            and set(value) <= set('0123456789abcdef'))


def _check_patch_hash(patch: str) -> None:
    hashes = _read_sidecar(patch)
    if hashes and _hash(patch) != hashes['patch_hash']:
        raise exceptions.IntegrityError(
            f'{patch} is not the delta that {patch}{_SIDECAR_SUFFIX} '
            'describes; fetch both again.')
