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
"""Run a command without io_uring, which the kernel refuses it.

Container runtimes do that, too: ``python -m testing.no_io_uring COMMAND...``.
"""

import ctypes
import errno
import os
import struct
import sys

# Of prctl(2).
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_SYS_IO_URING_SETUP = 425
# Of seccomp(2).
_ERRNO, _ALLOW = 0x00050000, 0x7fff0000
# Instructions: load the word at an offset, jump if it is equal, return.
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06


class _Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_char_p)]


def forbid() -> None:
    """Have the kernel refuse io_uring to this process.

    :raises OSError: it cannot
    """
    code = b''.join(struct.pack('HBBI', *one) for one in (
        (_LOAD, 0, 0, 0), (_JUMP_EQUAL, 0, 1, _SYS_IO_URING_SETUP),
        (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)))
    program = _Program(len(code) // 8, code)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if (prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            or prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program))):
        raise OSError(ctypes.get_errno(), 'no filter of system calls')


if __name__ == '__main__':
    forbid()
    os.execvp(sys.argv[1], sys.argv[1:])
