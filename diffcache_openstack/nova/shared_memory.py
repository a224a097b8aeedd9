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
"""Memory of servers that other processes can map, as vhost-user needs it."""

import typing

from lxml import etree
from oslo_utils import strutils

from nova.virt.libvirt import config as vconfig

# Of a flavor: its servers have such memory, without huge pages.
EXTRA_SPEC = 'diffcache:shared_memory'


class SharedBacking(vconfig.LibvirtConfigGuestMemoryBacking):
    """Anonymous memory that is shared.

    :param backing: what the server has otherwise
    """

    def __init__(self, backing: vconfig.LibvirtConfigGuestMemoryBacking | None
                 ) -> None:
        super().__init__()
        self.__dict__.update({} if backing is None else backing.__dict__)
        self.sharedaccess = True

    def format_dom(self) -> typing.Any:
        """Return the element of libvirt's document."""
        found = super().format_dom()
        found.find('access').addprevious(etree.Element('source',
                                                       type='memfd'))
        return found


def is_wanted(flavor: typing.Any) -> bool:
    """Return whether a flavor has memory shared."""
    return strutils.bool_from_string(flavor.extra_specs.get(EXTRA_SPEC))


def share(flavor: typing.Any,
          backing: vconfig.LibvirtConfigGuestMemoryBacking | None
          ) -> vconfig.LibvirtConfigGuestMemoryBacking | None:
    """Return the backing of a server's memory, shared if its flavor says so.

    Huge pages and files are so without that.

    :param backing: Nova's
    """
    if not is_wanted(flavor) or backing is not None and (
            backing.hugepages or backing.filesource):
        return backing
    return SharedBacking(backing)
