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
"""The OpenStack of tools/openstack, as the cases use it."""

import collections.abc
import contextlib
import pathlib
import shutil
import sys

from bench.harness import errors
from bench.harness import runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / 'tools' / 'openstack.d'))

from onemachine import errors as site_errors  # noqa: E402
from onemachine import guests  # noqa: E402
from onemachine import modes  # noqa: E402

MIB = 1 << 20


class Site:
    """An OpenStack that is brought up in one way after the other.

    :ivar stage: its servers, images and hosts
    """

    def __init__(self, run: runs.Run, folder: str, sizes: dict[str, int],
                 *family: tuple) -> None:
        # Of the environment that the OpenStack runs in.
        from onemachine import stage
        self._run = run
        self._way: str | None = None
        self._images: dict[str, str] = {}
        self.stage = stage.Stage(run.options.state.resolve(), run.options.wan,
                                 run.say)
        self.guests = guests.Guests(
            self.stage.trial.where.folder('cache', folder), run.say,
            guests.Sizes(**sizes), *family)

    def up(self, way: str, capacity: int) -> dict[str, str]:
        """Bring it up with empty caches, unless it is; return the images."""
        if self._way != way:
            self.stage.clear()
            self.stage.bring_up(way, capacity)
            self._images = self.stage.upload(self.guests.ensure())
            self.stage.await_repository(self._images)
            self._way = way
        return self._images


@contextlib.contextmanager
def entered(run: runs.Run) -> collections.abc.Iterator[None]:
    """Run in the environment of the OpenStack; starts this program again.

    :raises BenchError: there is none, or it failed
    """
    state = run.options.state.resolve()
    if pathlib.Path(sys.prefix) != state / 'venv':
        # A service that is started again makes its own.
        shutil.rmtree(run.work)
    try:
        modes.enter_environment(state)
        yield
    except site_errors.OpenStackError as error:
        raise errors.BenchError(str(error)) from error
