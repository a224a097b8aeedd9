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
"""What of a site needs attention, in sentences of the user's language."""

from django.utils.translation import gettext_lazy as _

from diffcache_openstack.client import problems
from diffcache_openstack.dashboard import formats
from diffcache_openstack.dashboard.hosts import tables

SENTENCES = {
    problems.HOST_DEAD: _(
        'Host %(host)s is dead: last heartbeat at %(seen_at)s.'),
    problems.NO_PLAN: _(
        'Site %(site)s has no plan yet: compute one under Plans.'),
    problems.REPOSITORY_DEAD: _(
        'Repository %(host)s is dead: last heartbeat at %(seen_at)s.'),
    problems.REPOSITORY_UNREACHABLE: _(
        'Host %(host)s gets nothing from repository %(repository)s since'
        ' %(since)s: %(reason)s'),
    problems.IMAGE_NOT_ADDED: _(
        'Repository %(host)s could not add image %(image)s (%(state)s):'
        ' %(reason)s')}
_INSTANTS = ('seen_at', 'since')


def sentence(problem: problems.Problem) -> str:
    """Return a problem as a sentence, with instants in the user's zone.

    Reasons are in the words of the service.
    """
    values = dict(problem.values)
    for name in _INSTANTS:
        if name in values:
            values[name] = formats.instant(values[name])
    if 'state' in values:
        values['state'] = dict(tables.PENDING).get(values['state'],
                                                   values['state'])
    return str(SENTENCES[problem.code] % values)
