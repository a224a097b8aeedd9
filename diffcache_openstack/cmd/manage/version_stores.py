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
"""``diffcache-manage version-store`` and ``version-key``."""

import argparse
import uuid

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.common.commands import cli
from diffcache_openstack.db.versions import heads as version_heads
from diffcache_openstack.rpc import conductor_versions_api


class _ProjectArgument(base.Command):

    arguments = (cli.Argument('project', metavar='PROJECT',
                              help='ID of the project.'),)


class VersionStoreReset(_ProjectArgument):
    """Forget which catalogue of a project's store of versions is the last.

    After the store was restored from a copy on purpose: the next task that
    changes it continues with the catalogue that the store has. Remove what the
    agents remember, too, as their error says.
    """

    examples = ('8f4c2d',)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with self.database() as database:
            database.write(version_heads.forget, parsed_args.project)


class VersionKeyRotate(_ProjectArgument, base.ShowOne):
    """Replace the key that a project's versions are encrypted with.

    With [versions] key_manager, a new key is created there. With key_file, it
    is the present one of that file; name the former file in former_key_files.
    What is stored from then on has the new key. Packs are re-encrypted in the
    background, by a series of tasks. The former key is needed until a task has
    the result "packs_left": 0.
    """

    examples = ('8f4c2d',)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple:
        task_id = str(uuid.uuid4())
        with self.bus() as bus:
            conductor_versions_api.VersionsAPI(bus, self.conf).rotate_key(
                base.service_context(),
                parsed_args.project, task_id)
        return ('task',), (task_id,)
