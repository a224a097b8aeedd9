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
"""Why something failed, for users who may not see the operator's machines.

Errors as hosts raise them have names of hosts and paths. Users get a text that
only depends on the error's code.
"""

import typing

_UNKNOWN = ('The task failed; give its ID to your cloud administrator, who'
            ' sees the reason.')
_TEXTS = {
    'busy': 'Another task uses the disk or the store; try again later.',
    'cancelled': 'The task was cancelled.',
    'conflict': 'The server or the version is not in a state in which this is'
                ' possible: the server may be running, or have other disks'
                ' than the version.',
    'integrity_error': 'Stored data is damaged; your cloud administrator can'
                       ' verify the store.',
    'invalid_input': 'A disk of the server, or an option of the task, cannot'
                     ' be used for this.',
    'no_space': 'There is no space left in the store of versions or on the'
                ' host; inform your cloud administrator.',
    'not_found': 'The server, or a part of the version, does not exist any'
                 ' more, or the server is on no host.',
    'object_missing': 'The image that the server was created from is missing;'
                      ' your cloud administrator can restore it.',
    'quota_exceeded': 'The quota of the project does not allow it; see'
                      ' "openstack image cache quota list".',
    'service_unavailable': 'A service that the task needs did not answer; try'
                           ' again later.',
}
CODES = tuple(sorted(_TEXTS))


def of_task(document: dict[str, typing.Any]) -> str | None:
    """Explain why a task or the save of a version failed."""
    if document['error'] is None:
        return None
    return _TEXTS.get(document['error_code'], _UNKNOWN)


def of_job(document: dict[str, typing.Any]) -> str | None:
    """Explain what keeps a precache job from its end."""
    if document['message'] is None:
        return None
    return ('The job cannot proceed at present; give its ID to your cloud'
            ' administrator, who sees the reason.')


def of_target(document: dict[str, typing.Any]) -> str | None:
    """Explain why a host does not have an image yet."""
    if document['message'] is None:
        return None
    return 'The host could not get the image yet.'
