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
"""Servers of NBD that are compared, and fio as their client."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

from diffcache_openstack.ssdcache import control

BLOCK = 4096
PATIENCE_S = 60
TICK = os.sysconf('SC_CLK_TCK')


def cpu_seconds(pid):
    """Return the CPU time that a process has used."""
    fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2]
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / TICK


@contextlib.contextmanager
def running(line, **options):
    """Run a server, and end it."""
    process = subprocess.Popen(line, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def fio(uri, *options):
    """Run fio on an export, and return its first job."""
    return finish(start_fio(uri, *options))


def start_fio(uri, *options):
    """Start fio on an export."""
    return subprocess.Popen(
        # Without a session of its own, which has a share of the processors of
        # its own, too, whatever priority this process has.
        ['fio', '--name=nbd', '--thread', '--ioengine=nbd', f'--uri={uri}',
         '--bs=4k', '--output-format=json', *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process):
    """Wait for fio, and return its first job."""
    output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f'fio failed: {output} {errors}')
    return json.loads(output[output.index('{'):])['jobs'][0]


@contextlib.contextmanager
def served(line, path):
    """Run a server until its socket is there; yield process and address."""
    with running(line) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield process, f'nbd+unix:///?socket={path}'


def plugin(directory, name, *words):
    """Run nbdkit with a plug-in; yield its process and address.

    :param words: filters, the plug-in, and parameters
    """
    path = directory / f'{name}.socket'
    return served(['nbdkit', '--foreground', '--unix', str(path), *words],
                  path)


@contextlib.contextmanager
def storage_daemon(directory, options):
    """Run qemu-storage-daemon on what some options of QEMU open."""
    path = directory / 'daemon.socket'
    with served(['qemu-storage-daemon', '--blockdev',
                 json.dumps({'node-name': 'n', **options}),
                 '--nbd-server', f'addr.type=unix,addr.path={path}',
                 '--export', 'type=nbd,id=n,node-name=n,name=n,writable=on'],
                path) as (process, _uri):
        yield process, f'nbd+unix:///n?socket={path}'


class Cache:
    """A cache that runs.

    :ivar process: its process
    :ivar exports: addresses by the names of volumes
    """

    def __init__(self, directory, process):
        self.process = process
        self.exports = json.loads(process.stdout.readline())['exports']
        self._control = str(directory / 'control')

    def status(self):
        """Return the counters of each volume."""
        return control.send(self._control, 'status')['volumes']


def cache(directory, capacity, volumes, *words):
    """Run the cache, empty.

    :param volumes: origins and options, by names
    """
    return start_cache(directory, capacity, volumes, '--format', *words)


@contextlib.contextmanager
def start_cache(directory, capacity, volumes, *words):
    """Run the cache, with what the device has."""
    line = [sys.executable, '-c',
            'from diffcache_openstack.cmd.toolbox import app as toolbox;'
            ' raise SystemExit(toolbox.main())', 'ssdcache', 'serve',
            '--device', str(directory / 'device'),
            '--socket', str(directory / 'cache.socket'),
            '--control', str(directory / 'control'),
            '--state', str(directory / 'state'),
            '--capacity', str(capacity), *words]
    for name, origin in volumes.items():
        line += ['--volume', f'{name}={origin}']
    with running(line, stdout=subprocess.PIPE) as process:
        yield Cache(directory, process)
