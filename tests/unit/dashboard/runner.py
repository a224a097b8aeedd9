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
"""Django's test runner; counts the tests for tools/lib/results.py."""

import os
import unittest

from django.test import runner

# A file ending in .checks; the tests are not counted without it.
RESULTS = 'DIFFCACHE_TEST_RESULTS'


class Result(unittest.TextTestResult):
    """Adds a line for each test to the file of results."""

    def addSuccess(self, test):
        super().addSuccess(test)
        self._count('passed', test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._count('skipped', test)

    def addError(self, test, err):
        super().addError(test, err)
        self._count('failed', test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._count('failed', test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._count('failed', test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._count('failed', subtest)

    def _count(self, outcome, test):
        path = os.environ.get(RESULTS)
        if path:
            with open(path, 'a') as file:
                file.write(f'{outcome}\t{test.id()}\n')


class Runner(runner.DiscoverRunner):
    """Uses that class for results."""

    def get_resultclass(self):
        return Result
