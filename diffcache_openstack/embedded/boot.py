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
"""Boot a disk image in QEMU until its guest says that it is up.

The proof that an image is not only equal but usable: a real BIOS, boot
loader, kernel and init run from it. The image itself is never written: what
the guest writes goes to a temporary overlay that QEMU deletes. Pure software
emulation (TCG), so that it works where virtualisation does not.
"""

import dataclasses
import pathlib
import queue
import subprocess
import tempfile
import threading
import time

from diffcache_openstack.common import exceptions

QEMU = 'qemu-system-x86_64'

_CONSOLE_TAIL_BYTES = 4096
_STOP_SECONDS = 10


@dataclasses.dataclass(frozen=True)
class BootResult:
    """What came out of one boot.

    marker_seen: the guest printed the marker in time
    seconds: from starting QEMU to the marker, or to giving up
    line: the line with the marker; empty if there was none
    console: the last part of what the guest printed
    """

    marker_seen: bool
    seconds: float
    line: str
    console: str


def boot(
    image: pathlib.Path,
    marker: str,
    *,
    timeout: float = 240.0,
    memory_mib: int = 768,
) -> BootResult:
    """Boot a raw image until its serial console shows a marker.

    Returns as soon as a line with the marker is complete, the guest stops,
    or the time is over; QEMU never outlives the call.

    :param image: a raw disk image; left exactly as it is
    :param marker: text to wait for on the guest's first serial port
    :param timeout: seconds after which the guest counts as not starting
    :param memory_mib: the guest's memory
    :raises NotFound: there is no such image, or QEMU is not installed
    """
    if not image.is_file():
        raise exceptions.NotFound(
            f'image {image} does not exist: nothing to boot'
        )
    started = time.monotonic()
    # QEMU puts the overlay of snapshot=on into TMPDIR; it goes with it.
    with tempfile.TemporaryDirectory(prefix='diffcache-boot-') as scratch:
        qemu = _start(_command(image, memory_mib), scratch)
        try:
            line, console = _watch(qemu, marker.encode(), started + timeout)
        finally:
            _stop(qemu)
    return BootResult(
        marker_seen=bool(line),
        seconds=time.monotonic() - started,
        line=line.decode(errors='replace').strip(),
        console=console.decode(errors='replace'),
    )


def _command(image: pathlib.Path, memory_mib: int) -> list[str]:
    # A comma ends an option's value unless doubled.
    path = str(image.absolute()).replace(',', ',,')
    return [
        QEMU,
        '-machine', 'pc,accel=tcg',
        '-cpu', 'max',
        '-smp', '2',
        '-m', str(memory_mib),
        '-nodefaults',
        '-no-user-config',
        '-no-reboot',
        '-display', 'none',
        '-serial', 'stdio',
        '-drive', f'file={path},format=raw,if=virtio,snapshot=on',
    ]


def _start(command: list[str], scratch: str) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={'PATH': '/usr/bin:/bin', 'TMPDIR': scratch},
        )
    except FileNotFoundError as error:
        raise exceptions.NotFound(
            f'{QEMU} is not installed: install the package qemu-system-x86'
        ) from error


def _watch(
    qemu: subprocess.Popen[bytes], marker: bytes, deadline: float
) -> tuple[bytes, bytes]:
    """Return the line with the marker, empty if none, and the last output."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(
        target=_read_lines, args=(qemu, lines), daemon=True
    ).start()
    console = b''
    while (left := deadline - time.monotonic()) > 0:
        try:
            line = lines.get(timeout=left)
        except queue.Empty:
            break
        console = (console + line)[-_CONSOLE_TAIL_BYTES:]
        if marker in line:
            return line, console
        if not line:
            break
    return b'', console


def _read_lines(
    qemu: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes]
) -> None:
    """Pass on what the guest prints; an empty line means that it ended."""
    assert qemu.stdout is not None
    with qemu.stdout as stream:
        for line in stream:
            lines.put(line)
    lines.put(b'')


def _stop(qemu: subprocess.Popen[bytes]) -> None:
    qemu.terminate()
    try:
        qemu.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        qemu.kill()
        qemu.wait()
