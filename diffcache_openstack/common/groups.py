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
"""Groups of users, by their names in options."""

import grp

from diffcache_openstack.common import exceptions


def number(option: str, name: str | None) -> int | None:
    """Return the number of a group; None without a name.

    :param option: that names it, for the error
    :raises InvalidInput: there is no such group
    """
    if not name:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise exceptions.InvalidInput(
            f'{option}: there is no group {name}; create it, or name another'
            f' one.') from error
