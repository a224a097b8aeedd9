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
"""What the system of a host says of itself: its clock and its programs."""

import ctypes
import os
import re
import shutil
import subprocess

from diffcache_openstack.common import exceptions

# Of struct timex in bytes, with room for what a kernel may add.
_TIMEX_SIZE = 512
# What adjtimex returns for a clock that nothing synchronises.
_TIME_ERROR = 5
# Programs of OpenStack load for seconds before they print their version.
_SECONDS = 60.0


def clock_is_synchronised() -> bool:
    """Return whether something keeps the kernel's clock right.

    :raises OSError: the kernel does not tell
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # No bit of its first field, "modes", is set: nothing is changed.
    state = libc.adjtimex(ctypes.create_string_buffer(_TIMEX_SIZE))
    if state < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()),
                      'adjtimex')
    return state != _TIME_ERROR


def version_of(program: str) -> tuple[int, ...] | None:
    """Ask a program for its version.

    :returns: its numbers, or None if the program is not on the path
    :raises ServiceUnavailable: it does not say
    """
    path = shutil.which(program)
    if path is None:
        return None
    try:
        done = subprocess.run([path, '--version'], capture_output=True,
                              text=True, timeout=_SECONDS,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise exceptions.ServiceUnavailable(
            f'{path} --version does not end within {_SECONDS:.0f} s;'
            f' run it by hand') from None
    found = re.search(r'\b\d+(?:\.\d+)+', done.stdout)
    if found:
        return tuple(map(int, found[0].split('.')))
    raise exceptions.ServiceUnavailable(
        f'{path} --version prints no version; run it by hand')
