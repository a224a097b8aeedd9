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
"""``auto``: create the patch with each codec that may win, keep the smallest.

Patches are compared by their sizes once they exist. A codec is left out where
it cannot win: ``qcow2`` if neither file is one, and ``rdiff``, which is slow
and does not compress, if a sample of the target shows that its literals alone
would be larger than the smallest patch so far.
"""

import dataclasses
import math
import os
import tempfile

from diffcache_openstack import _native
from diffcache_openstack.blocks.codecs import base as codec_base
from diffcache_openstack.blocks.codecs import registry
from diffcache_openstack.blocks import native
from diffcache_openstack.blocks import operands
from diffcache_openstack.common import exceptions

_QCOW2_MAGIC = b'QFI\xfb'

#: rdiff finds data that moved by any number of bytes. It can win only where
#: block-granular matching found little: its literals are not compressed.
# Windows of the target that are looked for in the base. Patches below the
# share of a few of them are too small for the sample to say anything.
_WINDOWS = 1 << 14
_FEW = 4
_SHORTEST_WINDOW = 64
_LONGEST_WINDOW = 4096


@dataclasses.dataclass(frozen=True)
class Choice:
    """The patch that was kept, and why."""

    info: codec_base.PatchInfo
    reason: str


def _is_qcow2(path: str) -> bool:
    with open(path, 'rb') as stream:
        return stream.read(len(_QCOW2_MAGIC)) == _QCOW2_MAGIC


class _Contest:
    """Patches of several codecs between the same two files."""

    def __init__(self, base: str, target: str, patch: str,
                 level: int | None, scratch: str,
                 progress: codec_base.Progress | None) -> None:
        self._base = base
        self._target = target
        self._patch = patch
        self._level = level
        self._scratch = scratch
        self._progress = progress
        self._best: codec_base.PatchInfo | None = None
        self._notes: list[str] = []
        self._left_out = False

    def enter(self, codec: codec_base.PatchCodec) -> None:
        """Create a patch with ``codec``; keep it if it is the smallest."""
        path = os.path.join(self._scratch, codec.name)
        level = None if codec.name == 'rdiff' else self._level
        try:
            info = codec.create(self._base, self._target, path, level,
                                self._progress)
        except (exceptions.InvalidInput, exceptions.FormatError) as exc:
            if codec.name == 'block':
                raise
            self._left_out = True
            self._notes.append(f'{codec.name} not possible: {exc}')
            return
        except exceptions.NoSpace as exc:
            raise exceptions.NoSpace(
                f'No space beside {self._patch}, where patches are tried; '
                'free some, or choose a codec.') from exc
        self._notes.append(f'{codec.name} {info.patch_size} bytes')
        if self._best is None or info.patch_size < self._best.patch_size:
            self._best = info

    @property
    def smallest(self) -> int:
        """The size of the smallest patch so far, in bytes."""
        return self._found().patch_size

    def leave_out(self, name: str, why: str) -> None:
        """Note that a codec was not tried."""
        self._left_out = True
        self._notes.append(f'{name} not tried: {why}')

    def enter_rdiff(self) -> None:
        """Try ``rdiff`` unless a sample shows that it cannot win."""
        reason = self._against_rdiff()
        if reason is None:
            self.enter(registry.get('rdiff'))
        else:
            self.leave_out('rdiff', reason)

    def _against_rdiff(self) -> str | None:
        with native.translated():
            sample = _native.overlap_estimate(
                self._base, self._target, _window(self._base), _WINDOWS,
                self._progress)
        windows = max(1, sample['windows'])
        data_size = sample['data_size']
        if self.smallest * windows <= _FEW * data_size:
            return 'the patch is too small to estimate whether it would win'
        missing = windows - sample['same'] - sample['moved']
        # Two standard deviations off, in favour of trying.
        least = max(0.0, missing - 2 * math.sqrt(missing))
        literals = int(least / windows * data_size)
        if literals < self.smallest:
            return None
        return (f'by a sample, {missing / windows:.1%} of the target is '
                f'nowhere in the base, at least {literals} bytes')

    def finish(self) -> Choice:
        """Move the smallest patch to its place."""
        patch = self._patch
        best = self._found()
        made = os.path.join(self._scratch, best.codec)
        with operands.translate_os_errors(patch):
            # The rdiff codec leaves its hashes beside the delta.
            sidecar = made + '.json'
            if os.path.exists(sidecar):
                os.replace(sidecar, patch + '.json')
            os.replace(made, patch)
        among = ' of those tried' if self._left_out else ''
        return Choice(best, f'{best.codec} is the smallest{among} '
                            f'({"; ".join(self._notes)})')

    def _found(self) -> codec_base.PatchInfo:
        if self._best is None:
            raise RuntimeError('no codec has entered yet')
        return self._best


def create(base: str, target: str, patch: str, level: int | None = None,
           progress: codec_base.Progress | None = None) -> Choice:
    """Write to ``patch`` the smallest patch from ``base`` to ``target``.

    :raises: what :meth:`PatchCodec.create` of the codec ``block`` raises
    """
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
        contest = _Contest(base, target, patch, level, directory,
                           progress)
        contest.enter(registry.get('block'))
        if _is_qcow2(base) or _is_qcow2(target):
            contest.enter(registry.get('qcow2'))
        else:
            contest.leave_out('qcow2', 'neither file is one')
        contest.enter_rdiff()
        return contest.finish()


def _window(base: str) -> int:
    """Choose the bytes of a window: an eighth of rdiff's blocks.

    librsync's blocks grow with the root of the base's size.
    """
    block = math.isqrt(os.path.getsize(base))
    return min(max(_SHORTEST_WINDOW, block // 8), _LONGEST_WINDOW)
