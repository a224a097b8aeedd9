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
"""Names of the blobs of a version store: see the reference of its format."""

import re
from typing import Iterable

from diffcache_openstack.versions.store import commits

_NUMBERED = re.compile(r'(pack|index|map|manifest|hooks|records)-\d{8,}-'
                       r'[a-z0-9]+'
                       r'|base-[a-z0-9]+-[a-z0-9]+'
                       r'|next-\d{10,}-[0-9a-f]+')


def is_own(name: str) -> bool:
    """Return whether a version store may have named a blob so."""
    return (_NUMBERED.fullmatch(name) is not None
            or commits.is_bookkeeping(name))


def foreign(names: Iterable[str]) -> list[str]:
    """Return the names that no version store gives, sorted."""
    return sorted(name for name in names if not is_own(name))
