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
"""Guests of one boot sector, for tests that boot something."""

SECTOR = 512

# What a guest of one boot sector does, in 16-bit machine code.
START = bytes.fromhex('31c0 8ed8 8ec0')  # data segments at 0
WRITE = bytes.fromhex(
    'b80103 b90200 ba8000 bb007c cd13'  # store this code in sector 2
    '7300'  # and go on where that worked; see below
)
PRINT = bytes.fromhex('ac 84c0 7406 baf803 ee ebf5')  # text at SI to COM1
HALT = bytes.fromhex('f4 ebfd')
RESET = bytes.fromhex('b0fe e664')


def boot_sector(text, *, ending=HALT, writes=False):
    """A disk whose guest may write to it, prints a text, and ends."""
    code = START
    if writes:
        # jnc over the halt, so that a failed write prints nothing.
        code += WRITE[:-1] + bytes([len(HALT)]) + HALT
    address = 0x7C00 + len(code) + 3 + len(PRINT) + len(ending)
    code += b'\xbe' + address.to_bytes(2, 'little') + PRINT + ending
    code += text.encode() + b'\0'
    return code.ljust(SECTOR - 2, b'\0') + b'\x55\xaa' + bytes(1 << 20)
