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
"""A service that holds Python's interpreter until its stacks are written."""

import ctypes
import pathlib
import sys

_MICROSECONDS = 2_000_000


def hold() -> None:
    """Sleep as a call of C that lets no other thread run Python."""
    ctypes.PyDLL(None).usleep(_MICROSECONDS)


def main() -> None:
    """Hold it again and again, while the file named has no stacks of that."""
    stacks = pathlib.Path(sys.argv[1])
    while 'in hold' not in stacks.read_text():
        hold()
