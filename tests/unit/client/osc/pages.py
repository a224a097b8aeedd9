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
"""What pages of the documentation show of the fields of commands.

The trials that type the pages need a whole OpenStack, and so run seldom.
"""

import pathlib

from tests.functional.openstack import transcripts

DOCUMENTS = pathlib.Path(__file__).parents[4] / 'doc' / 'source'
CLIENT = DOCUMENTS / 'user' / 'openstack-client.rst'
SSD_CACHE = DOCUMENTS / 'admin' / 'ssd-cache-example.rst'


def assert_are_fields(test, page: pathlib.Path, command: str,
                      names: tuple[str, ...]) -> None:
    """Check fields that a page shows: those of a command, none left out.

    :param command: its first words; a step with "-c" has other fields
    :param names: of the fields, in the order in which the command prints them
    """
    shown = [part for step in transcripts.steps(page.read_text())
             if command in step.command and ' -c ' not in step.command
             for part in _parts(step.shown)]
    test.assertNotEqual([], shown, command)
    for part in shown:
        test.assertIn(f' {" ".join(part)} ', f' {" ".join(names)} ', command)


def _parts(lines: list[str]) -> list[list[str]]:
    """Names of fields in lines that follow each other, by runs of them."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == transcripts.ELLIPSIS:
            parts.append([])
        elif line.startswith('| ') and line.split()[1] not in ('|', 'Field'):
            parts[-1].append(line.split()[1])
    return [part for part in parts if part]
