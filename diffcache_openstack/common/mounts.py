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
"""Filesystems that paths are on."""

import contextlib
import pathlib
from typing import NamedTuple


class Mount(NamedTuple):
    """A mounted filesystem."""

    #: As the kernel names it, ``ext4`` or ``nfs4``; None if unknown.
    kind: str | None
    place: pathlib.Path


def mount_of(path: pathlib.Path) -> Mount:
    """Return the filesystem that a path is on."""
    real = path.resolve()
    best = Mount(None, pathlib.Path('/'))
    with contextlib.suppress(OSError):
        with open('/proc/self/mounts', encoding='utf-8') as mounts:
            for line in mounts:
                _device, where, kind = line.split()[:3]
                place = pathlib.Path(where.encode().decode('unicode_escape'))
                # Of two at one mount point, the later one hides the other.
                if (real.is_relative_to(place)
                        and len(place.parts) >= len(best.place.parts)):
                    best = Mount(kind, place)
    return best
