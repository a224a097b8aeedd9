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
"""Work that several threads ask for at the same time, done together."""

import collections.abc
import threading
import time
import typing

Item = typing.TypeVar('Item')
Result = typing.TypeVar('Result')


class _Entry(typing.Generic[Item, Result]):
    """An item that waits, and what came of it."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.is_done = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class Batches(typing.Generic[Item, Result]):
    """Runs a function for all items that wait, in one of their threads.

    An item that comes alone is not delayed; those that come within ``pause``
    after a run wait for its end, and run together.

    :param run: returns a result for each item, in their order, or an error
        to raise for it
    :param pause: seconds between two runs
    :param most: items of one run
    """

    def __init__(self, run: collections.abc.Callable[
                     [list[Item]], list[Result | Exception]],
                 pause: float, most: int) -> None:
        self._run = run
        self._pause = pause
        self._most = most
        self._changed = threading.Condition()
        self._waiting: list[_Entry[Item, Result]] = []
        self._is_running = False
        self._next_at = 0.0

    def submit(self, item: Item) -> Result:
        """Run an item with others, and return its result."""
        entry: _Entry[Item, Result] = _Entry(item)
        with self._changed:
            self._waiting.append(entry)
        while not self._is_done_by_another(entry):
            self._run_next()
        if entry.error is not None:
            raise entry.error
        return typing.cast(Result, entry.result)

    def _is_done_by_another(self, entry: _Entry) -> bool:
        """Wait for an item; False if this thread is to run the next batch."""
        with self._changed:
            self._changed.wait_for(
                lambda: entry.is_done or not self._is_running)
            self._is_running |= not entry.is_done
            return entry.is_done

    def _run_next(self) -> None:
        time.sleep(max(0.0, self._next_at - time.monotonic()))
        with self._changed:
            batch = self._waiting[:self._most]
            del self._waiting[:self._most]
        try:
            found: list = self._run([entry.item for entry in batch])
        except BaseException as error:
            found = [error] * len(batch)
        with self._changed:
            for entry, result in zip(batch, found, strict=True):
                if isinstance(result, BaseException):
                    entry.error = result
                else:
                    entry.result = result
                entry.is_done = True
            self._next_at = time.monotonic() + self._pause
            self._is_running = False
            self._changed.notify_all()
