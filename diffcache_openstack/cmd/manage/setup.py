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
"""``diffcache-manage setup``."""

import argparse
import pathlib
import re
import sys

from diffcache_openstack.cmd.manage import base
from diffcache_openstack.cmd.manage import deployment_files
from diffcache_openstack.common.commands import cli
from diffcache_openstack.common import exceptions

_NAME = r'[A-Za-z0-9][A-Za-z0-9._-]{0,254}'
_MACHINE = re.compile(rf'({_NAME})(?:=([A-Za-z0-9][A-Za-z0-9.-]{{0,254}}))?')


def _machine(text: str) -> deployment_files.Machine:
    """Parse NAME or NAME=ADDRESS."""
    found = _MACHINE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no host name, nor NAME=ADDRESS with a name or an'
            f' IPv4 address')
    return deployment_files.Machine(found[1], found[2] or found[1])


def _asked(text: str) -> deployment_files.Machine:
    """Parse what was typed as an answer.

    :raises InvalidInput: it is no machine
    """
    try:
        return _machine(text)
    except argparse.ArgumentTypeError as error:
        raise exceptions.InvalidInput(str(error)) from error


class Setup(base.Command):
    """Write configuration, keys and certificates of a deployment's machines.

    Five answers suffice: the controller, the repository, the compute hosts,
    their site and the URL of Keystone. On a terminal they are asked for if
    they are not given. The directory gets a subdirectory for each machine,
    whose files belong in /etc/diffcache there. Run it again with --compute to
    add hosts: keys and answers in the directory are kept.
    """

    examples = (
        'deployment --controller ctl-1=10.0.0.2 --repository ctl-1=10.0.0.2 '
        '--compute edge-1=10.1.0.7 --site edge --keystone '
        'http://10.0.0.2:5000/v3',
        'deployment --compute edge-2=10.1.0.8')
    arguments = (
        cli.Argument('directory', type=pathlib.Path, metavar='DIRECTORY',
                     help='Directory for the files. Keep it, but not on a'
                          ' host of a site: it has the keys of the'
                          ' authorities.'),
        cli.Argument('--controller', type=_machine, metavar='NAME[=ADDRESS]',
                     help='Machine that runs conductor, API, database and'
                          ' broker.'),
        cli.Argument('--repository', type=_machine, metavar='NAME[=ADDRESS]',
                     help='Machine that runs the repository, beside Glance;'
                          ' may be the controller.'),
        cli.Argument('--compute', type=_machine, action='append', default=[],
                     metavar='NAME[=ADDRESS]',
                     help='Compute host, by its name in Nova; may be'
                          ' repeated.'),
        cli.Argument('--site', metavar='SITE',
                     help='Name of the site of the hosts, which have a fast'
                          ' network among themselves.'),
        cli.Argument('--keystone', metavar='URL', help='URL of Keystone.'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        files = deployment_files.Files(parsed_args.directory)
        deployment = files.read()
        if deployment is None:
            deployment = deployment_files.Deployment.new(
                **self._answers(parsed_args))
            for machine in parsed_args.compute:
                deployment.check_host(machine)
            files.begin(deployment)
            self._say(f'Run "sh {parsed_args.directory}/services.sh" on'
                      f' {deployment.controller.name}: it creates the'
                      f' database and the users.')
            self._tell_servers(parsed_args.directory, deployment)
        elif not parsed_args.compute:
            raise exceptions.InvalidInput(
                f'{parsed_args.directory} has the files of a deployment: name'
                f' hosts to add with --compute, or choose another directory.')
        for machine in parsed_args.compute:
            if files.add_host(deployment, machine):
                self._tell(parsed_args.directory, machine.name,
                           'diffcache-agent, and add its nova.conf to Nova\'s')
            else:
                self._say(f'{machine.name} has files already: unchanged. Move'
                          f' {parsed_args.directory}/{machine.name} away to'
                          f' have new keys and certificates issued.')
        self._say('Then run "diffcache-manage doctor" on each machine as the'
                  ' user diffcache.')

    def _tell(self, directory: pathlib.Path, name: str, services: str) -> None:
        self._say(f'Copy {directory}/{name}/* to'
                  f' {deployment_files.CONFIGURATION} of {name}, owned by the'
                  f' user diffcache; start {services}.')

    def _tell_servers(self, directory: pathlib.Path,
                      deployment: deployment_files.Deployment) -> None:
        controller, repository = deployment.controller, deployment.repository
        if controller.name == repository.name:
            self._tell(directory, controller.name, 'diffcache-conductor,'
                       ' diffcache-api and diffcache-repository')
            return
        self._tell(directory, controller.name,
                   'diffcache-conductor and diffcache-api')
        self._tell(directory, repository.name, 'diffcache-repository')

    def _say(self, text: str) -> None:
        self.app.stdout.write(f'{text}\n')

    def _answers(self, args: argparse.Namespace) -> dict:
        """Return the answers, asked for where the command line lacks one.

        :raises InvalidInput: one is missing, and this is no terminal
        """
        controller = args.controller or _asked(
            self._ask('--controller', 'Controller, NAME or NAME=ADDRESS'))
        repository = args.repository or _asked(
            self._ask('--repository', 'Repository', controller.name))
        if repository.name == controller.name:
            repository = controller
        if not args.compute:
            args.compute = [_asked(name) for name in self._ask(
                '--compute', 'Compute hosts, separated by spaces').split()]
        return {
            'controller': controller, 'repository': repository,
            'site': args.site or self._ask('--site', 'Site', 'edge'),
            'keystone': args.keystone or self._ask(
                '--keystone', 'URL of Keystone',
                f'http://{controller.address}:5000/v3')}

    def _ask(self, option: str, question: str, default: str = '') -> str:
        if not sys.stdin.isatty():
            raise exceptions.InvalidInput(
                f'{option} is missing, and there is no terminal to ask on.')
        shown = f'{question} [{default}]: ' if default else f'{question}: '
        return input(shown).strip() or default
