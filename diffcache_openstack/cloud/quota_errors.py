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
"""What quotas refuse, wherever their limits come from."""

import collections.abc

from diffcache_openstack.common import exceptions

# Called with a project and names of resources; returns how much is used.
Usage = collections.abc.Callable[
    [str | None, collections.abc.Collection[str]], dict[str, int]]


def exceeded(project_id: str, name: str, most: int, used: int
             ) -> exceptions.QuotaExceeded:
    """Return the error for what a quota does not allow."""
    return exceptions.QuotaExceeded(
        f'The quota {name} of project {project_id} is exceeded: the limit is'
        f' {most}, {used} are in use. Delete what is not needed, or ask your'
        f' cloud administrator for more; see "openstack image cache quota'
        f' show".')
