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
"""What the codecs have in common whose work the native core does."""

import abc
import contextlib
from typing import Any, Callable, ClassVar, Iterator

from diffcache_openstack.blocks.codecs import codec_base
from diffcache_openstack.blocks import native_errors
from diffcache_openstack.blocks import operands
from diffcache_openstack.common import exceptions

DEFAULT_LEVEL = 3
LEVELS = range(1, 20)


def check_level(level: int | None) -> int:
    """Return a usable compression level.

    :raises InvalidInput: out of range
    """
    if level is None:
        return DEFAULT_LEVEL
    if level not in LEVELS:
        raise exceptions.InvalidInput(
            f'There is no level {level}; choose one from {LEVELS[0]} to '
            f'{LEVELS[-1]}.')
    return level


def to_info(described: dict[str, Any]) -> codec_base.PatchInfo:
    """Convert the native core's description of a patch."""
    details = dict(described)
    common = {field: details.pop(field) for field in (
        'codec', 'base_hash', 'target_hash', 'base_size', 'target_size',
        'patch_size', 'blocks_copied', 'blocks_inserted')}
    # How long making it took is the caller's to print, of all codecs alike.
    details.pop('seconds', None)
    return codec_base.PatchInfo(**common, details=details)


class NativeCodec(codec_base.PatchCodec, abc.ABC):
    """Checks inputs, calls the native core, and translates its errors."""

    #: First bytes of every patch of this codec.
    magic: ClassVar[bytes]
    #: The native functions, as static methods.
    native_create: ClassVar[Callable[..., dict[str, Any]]]
    native_apply: ClassVar[Callable[..., Any]]
    native_info: ClassVar[Callable[..., dict[str, Any]]]
    native_verify: ClassVar[Callable[..., Any]]
    #: The content id of a base as this codec's patches know it.
    native_content_id: ClassVar[Callable[..., str]]

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        return head.startswith(cls.magic)

    def check_image(self, image: str, role: str) -> None:
        """Refuse what is no base or target of this codec's patches.

        :param role: what the image is to the operation
        :raises: what :meth:`create` raises
        """
        operands.check_readable(image, role)

    def create(self, base: str, target: str, patch: str,
               level: int | None = None,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        self.check_image(base, 'base')
        self.check_image(target, 'target')
        operands.check_output(patch, base=base, target=target)
        level = check_level(level)
        with operands.translate_os_errors(patch), native_errors.translated():
            return to_info(self.native_create(
                base, target, patch, level, progress))

    def apply(self, base: str, patch: str, output: str,
              progress: codec_base.Progress | None = None
              ) -> codec_base.PatchInfo:
        self.check_image(base, 'base')
        operands.check_output(output, patch=patch)
        info = self.info(patch)
        with (operands.translate_os_errors(output),
              self.explaining(base, patch, progress)):
            self.native_apply(base, patch, output, progress)
        return info

    def info(self, patch: str) -> codec_base.PatchInfo:
        operands.check_readable(patch, 'patch')
        with native_errors.translated(patch):
            return to_info(self.native_info(patch))

    def verify(self, base: str, patch: str,
               progress: codec_base.Progress | None = None
               ) -> codec_base.PatchInfo:
        self.check_image(base, 'base')
        info = self.info(patch)
        with self.explaining(base, patch, progress):
            self.native_verify(base, patch, progress)
        return info

    @contextlib.contextmanager
    def explaining(self, base: str, patch: str,
                   progress: codec_base.Progress | None) -> Iterator[None]:
        """Translate native errors; distinguish a wrong base from damage.

        Only after a failure it is known to be worth reading the base once
        more for its content id.
        """
        try:
            with native_errors.translated(patch):
                yield
        except exceptions.BaseMismatch as exc:
            wanted = self.wanted_base(self.info(patch))
            with native_errors.translated(base):
                found = self.native_content_id(base, progress)
            if found == wanted:
                raise exceptions.BaseMismatch(
                    f'{patch} does not fit {base}: {exc}') from exc
            raise codec_base.other_base(base, found, patch, wanted) from exc

    @abc.abstractmethod
    def wanted_base(self, info: codec_base.PatchInfo) -> str:
        """Return the content id of the base that a patch was made from."""
