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
"""Start-up of the services, shared by their console scripts."""

import atexit
import collections.abc
import contextlib
import logging
import os
import sys
import typing

from oslo_config import cfg
from oslo_log import log

from diffcache_openstack.cmd import reports
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.telemetry import logs
from diffcache_openstack.common.telemetry import tracing
from diffcache_openstack.conf import opts
from diffcache_openstack.runtime import service

LOG = log.getLogger(__name__)


class Program(typing.NamedTuple):
    """A console script that runs a service."""

    name: str
    #: What it does, for its help.
    description: str
    #: Creates the service from its configuration.
    create: collections.abc.Callable[[cfg.ConfigOpts], service.Service]
    #: Returns the number of processes to run it in.
    workers: collections.abc.Callable[[cfg.ConfigOpts], int]


def main(program: Program) -> int:
    """Run a service as all that this process does.

    The process ends once the functions have run that were registered with
    :mod:`atexit` since. Daemon threads that a stop has cut off may be in
    native code: one that returns from it while Python frees the interpreter
    is ended by unwinding its stack, which aborts the process
    (``FATAL: exception not rethrown``).

    :returns: the exit code, as :func:`run`
    """
    process, code = os.getpid(), 1

    def leave() -> None:
        # Not those that were forked.
        if os.getpid() == process:
            _leave(code)

    atexit.register(leave)
    try:
        code = run(program, sys.argv[1:])
    except SystemExit as leaving:
        code = int(leaving.code or 0)
        raise
    return code


def _leave(code: int) -> typing.NoReturn:
    """End the process, without the end of the interpreter."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def run(program: Program, argv: collections.abc.Sequence[str]) -> int:
    """Read the configuration, then run a service until SIGTERM or SIGINT.

    :param argv: the command line without the program's name
    :returns: the exit code: 0 after a requested stop, 1 if the service cannot
        work; argparse exits with 2 on wrong usage
    """
    name = program.name
    try:
        conf = opts.new_config(argv, help_text=opts.HelpText(
            name, program.description))
        logs.setup(conf, name)
        reports.write_on_signal(conf, name)
    except cfg.Error as error:
        print(f'{name}: error: {error}', file=sys.stderr)
        return 1
    try:
        tracing.setup(conf, name)
        return service.run(conf, program.create(conf),
                           program.workers(conf))
    except exceptions.DiffCacheError as error:
        LOG.critical('%s', error)
        # The log need not go to standard error.
        print(f'{name}: error: {error}', file=sys.stderr)
        return 1
