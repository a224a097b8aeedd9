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
"""Run steps after those that they need, as many at once as possible."""

import collections.abc
import concurrent.futures
import dataclasses
import sys
import threading
import time

_WORKERS = 6


@dataclasses.dataclass(frozen=True)
class Step:
    """Something to be done.

    :ivar name: shown while it runs, and how other steps call it
    :ivar action: does it; returns whether there was something to do
    :ivar after: names of the steps that have to be done before
    """

    name: str
    action: collections.abc.Callable[[], bool | None]
    after: tuple[str, ...] = ()


class Progress:
    """Lines with the seconds since the start."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Print a line on standard error; standard output is for answers."""
        with self._lock:
            sys.stderr.write(f'[{self.seconds:4.0f}s] {text}\n')
            sys.stderr.flush()


def run(steps: list[Step], progress: Progress) -> None:
    """Do all steps; a step is started when those that it needs are done.

    After a failure no further step is started, and what runs is waited for.

    :raises KeyError: a step names another that does not exist
    :raises Exception: the first failure of a step
    """
    waiting = {step.name: step for step in steps}
    for step in steps:
        for name in step.after:
            waiting[name]
    done: set[str] = set()
    with concurrent.futures.ThreadPoolExecutor(_WORKERS) as pool:
        running: dict[concurrent.futures.Future, Step] = {}
        while waiting or running:
            for step in list(waiting.values()):
                if done.issuperset(step.after):
                    del waiting[step.name]
                    running[pool.submit(_run_one, step, progress)] = step
            if not running:
                raise ValueError(
                    f'steps need each other: {", ".join(waiting)}')
            finished, _ = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                step = running.pop(future)
                future.result()
                done.add(step.name)


def _run_one(step: Step, progress: Progress) -> None:
    started = time.monotonic()
    if step.action() is not False:
        progress.say(f'{step.name} ({time.monotonic() - started:.1f} s)')
