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
"""``auto``: create the smallest patch, by trying the codecs that may win.

Patches are compared by their sizes once they exist. A codec after ``block``,
whose patches do most, has to save two per cent. It is left out only where it
cannot: ``qcow2`` if neither file is one, and ``rdiff`` if a sample of the
target shows that its literals alone, which it does not compress, are too many.
Where the sample cannot tell, rdiff is tried, and stopped as soon as its delta
is too large.
"""

import dataclasses
import math
import os
import tempfile
from typing import Sequence

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks.codecs import registry
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands
from diffcache_openstack.common import exceptions

_QCOW2_MAGIC = b'QFI\xfb'

#: The patch that is kept is at most this many per cent of the smallest.
_TOLERANCE = 102

#: Bytes of the target around which the base is searched.
_SAMPLE = 1 << 14
#: librsync's smallest block, in bytes, and what its larger ones are
#: multiples of.
_SMALLEST_BLOCK = 256
_BLOCK_UNIT = 128
_LONGEST_WINDOW = 8192
#: Bytes of both images for one of the patch, from which on no attempt is worth
#: reading them.
_WORTH = 100_000
#: Standard deviations that an estimate is lowered by: one sample in 30,000
#: is farther off.
_DEVIATIONS = 4


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What became of a codec."""

    codec: str
    #: Bytes of its patch; None if there is none.
    size: int | None
    reason: str


@dataclasses.dataclass(frozen=True)
class Choice:
    """The patch that was kept, and what became of each codec."""

    info: codec_base.PatchInfo
    attempts: list[Attempt]

    @property
    def reason(self) -> str:
        """Why this codec's patch was kept, in a line."""
        among = ('' if all(attempt.size is not None
                           for attempt in self.attempts) else ' of those '
                 'tried')
        notes = '; '.join(
            f'{attempt.codec} {attempt.reason}' if attempt.size is None
            else f'{attempt.codec} {attempt.size} bytes'
            for attempt in self.attempts)
        return f'{self.info.codec} is the smallest{among} ({notes})'


def _is_qcow2(path: str) -> bool:
    with open(path, 'rb') as stream:
        return stream.read(len(_QCOW2_MAGIC)) == _QCOW2_MAGIC


class _Contest:
    """Patches of several codecs between the same two files."""

    def __init__(self, base: str, target: str, level: int | None,
                 scratch: str, progress: codec_base.Progress | None) -> None:
        self._base = base
        self._target = target
        self._level = level
        self._scratch = scratch
        self._progress = progress
        self._best: codec_base.PatchInfo | None = None
        self._attempts: list[Attempt] = []

    def enter(self, name: str) -> None:
        """Try a codec unless it cannot win; keep its patch if it is smaller.

        :raises NoSpace: the patch does not fit
        """
        reason = self._against(name)
        if reason is not None:
            self._leave_out(name, f'not tried: {reason}')
            return
        try:
            info = self._create(registry.get(name))
        except exceptions.PermanentError as exc:
            # The codec cannot: an image of a kind that it refuses, or a
            # library that is missing.
            if name == 'block':
                raise
            self._leave_out(name, f'not possible: {exc}')
            return
        if info is None:
            self._leave_out(name, f'given up at {self._limit()} bytes')
            return
        self._attempts.append(Attempt(name, info.patch_size, 'tried'))
        self._best = info

    def finish(self, patch: str) -> Choice:
        """Move the smallest patch to its place."""
        best = self._found()
        made = self._path(best.codec)
        with operands.translate_os_errors(patch):
            # The rdiff codec leaves its hashes beside the delta.
            sidecar = made + '.json'
            if os.path.exists(sidecar):
                os.replace(sidecar, patch + '.json')
            os.replace(made, patch)
        return Choice(best, self._attempts)

    def _create(self, codec: codec_base.PatchCodec
                ) -> codec_base.PatchInfo | None:
        level = None if codec.name == 'rdiff' else self._level
        path = self._path(codec.name)
        if self._best is None:
            return codec.create(self._base, self._target, path, level,
                                self._progress)
        return codec.create_below(self._base, self._target, path,
                                  self._limit(), level, self._progress)

    def _limit(self) -> int:
        """Return the bytes that another codec's patch must stay below."""
        return -(-self._found().patch_size * 100 // _TOLERANCE)

    def _path(self, name: str) -> str:
        return os.path.join(self._scratch, name)

    def _leave_out(self, name: str, why: str) -> None:
        self._attempts.append(Attempt(name, None, why))

    def _against(self, name: str) -> str | None:
        """Return why a codec cannot win, or None if it may."""
        if name == 'qcow2' and not (_is_qcow2(self._base)
                                    or _is_qcow2(self._target)):
            return 'neither file is a qcow2 image'
        if name == 'rdiff':
            return self._against_rdiff()
        return None

    def _against_rdiff(self) -> str | None:
        size = self._found().patch_size
        if size < sum(map(os.path.getsize, (self._base, self._target))) \
                // _WORTH:
            return (f'the smallest patch has {size} bytes, and it reads both'
                    f' images to the end, holes too')
        with native_errors.translated():
            sample = _native.overlap_estimate(
                self._base, self._target, _window(self._base), _SAMPLE,
                self._progress)
        missing, sampled = sample['missing'], sample['sampled']
        least = max(0.0, missing - _DEVIATIONS * math.sqrt(missing))
        literals = int(least / max(1, sampled) * sample['changed_size'])
        if literals < self._limit():
            return None
        return (f'by a sample, {missing / sampled:.1%} of what changed is '
                f'nowhere in the base, and its delta has at least '
                f'{literals} bytes')

    def _found(self) -> codec_base.PatchInfo:
        if self._best is None:
            raise RuntimeError('no codec has entered yet')
        return self._best


def create(base: str, target: str, patch: str, level: int | None = None,
           progress: codec_base.Progress | None = None,
           codecs: Sequence[str] | None = None) -> Choice:
    """Write to ``patch`` the smallest patch from ``base`` to ``target``.

    :param codecs: names of the codecs to choose among, ``block`` first; all
        that are installed by default
    :raises: what :meth:`PatchCodec.create` of the codec ``block`` raises
    """
    names = sorted(codecs or registry.names(), key=_turn)
    operands.check_readable(base, 'base')
    operands.check_readable(target, 'target')
    # The rdiff codec leaves its hashes beside the patch.
    for output in (patch, patch + '.json'):
        operands.check_output(output, base=base, target=target)
    directory = os.path.dirname(os.path.abspath(patch))
    with operands.translate_os_errors(patch):
        scratch = tempfile.TemporaryDirectory(
            prefix=f'.{os.path.basename(patch)[:200]}.', suffix='.tmp',
            dir=directory)
    with scratch as directory:
        contest = _Contest(base, target, level, directory, progress)
        try:
            for name in names:
                contest.enter(name)
        except exceptions.NoSpace as exc:
            raise exceptions.NoSpace(
                f'No space beside {patch}, where patches are tried; free '
                f'some, or choose a codec.') from exc
        return contest.finish(patch)


def _turn(name: str) -> tuple[bool, bool, str]:
    """Sort codecs: the one that is always possible first, rdiff last."""
    return name != 'block', name == 'rdiff', name


def _window(base: str) -> int:
    """Choose the bytes of a window: half of librsync's blocks.

    These grow with the root of the base's size. A match covers one of them
    at least.
    """
    root = math.isqrt(os.path.getsize(base))
    block = max(_SMALLEST_BLOCK, root // _BLOCK_UNIT * _BLOCK_UNIT)
    return min(block // 2, _LONGEST_WINDOW)
