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
"""Replace Debian packages while their services are used, and count failures.

tools/debian-package runs this as root in a Debian with systemd, RabbitMQ and
MariaDB. Its Python is a copy of the packages' environment: Nova has one of its
own, too, which no upgrade of the packages changes.

    debian_upgrade.py setup               configure and start all services
    debian_upgrade.py replace DIRECTORY   install other packages under load
    debian_upgrade.py load SECONDS        nothing but the load
    debian_upgrade.py remove              remove and purge, with readers
"""

import abc
import collections
import collections.abc
import contextlib
import hashlib
import http.client
import json
import mmap
import os
import pathlib
import pwd
import random
import subprocess
import sys
import threading
import time
import typing

from diffcache_openstack.agent.lazy import diffcached
from diffcache_openstack.agent_client import local_client
from diffcache_openstack.agent_client import restarts
from diffcache_openstack.common import exceptions
from diffcache_openstack.common.signing import image_records
from diffcache_openstack.common.signing import signatures
from diffcache_openstack.nova import sources

MIB = 1 << 20
ETC = pathlib.Path('/etc/diffcache')
STATE = pathlib.Path('/var/lib/diffcache')
# What an administrator would have elsewhere.
WORK = pathlib.Path('/srv/trial')
INSTANCES = pathlib.Path('/var/lib/nova/instances')
VOLUMES = pathlib.Path('/var/lib/nova/mnt')
AGENT_SOCKET = STATE / 'agent.sock'
LAZY_SOCKET = STATE / 'lazy' / 'diffcached.sock'
CACHE_CONTROL = '/run/diffcache-ssdcache/control.sock'
API_PORT = 8796
UNITS = ('conductor', 'api', 'repository', 'agent', 'lazy', 'ssdcache')
IMAGES = ('first', 'second', 'third')
IMAGE_MIB = 48
LAZY = 'lazy'
LAZY_MIB = 512
VOLUME_MIB = 64
BLOCK = 4096
# The volume as a disk, through QEMU as a server has it.
DISK = WORK / 'disk'
DISK_PROCESS = 'diffcache-trial-disk'
# Keys are for the services' user alone.
MANAGE = ('runuser', '-u', 'diffcache', '--', 'diffcache-manage',
          '--config-file', ETC / 'controller.conf')
# Longer than any service takes to come back.
PATIENCE = 300.0
READY_SECONDS = 300.0
# More than the longest request while services run.
END_SECONDS = 30.0

COMMON = '''
[DEFAULT]
transport_url = rabbit://diffcache:secret@127.0.0.1:5672/
[messaging]
authority_file = /etc/diffcache/authority.pem
key_file = /etc/diffcache/{key}.key
[data_plane]
key_file = /etc/diffcache/site.key
listen = 127.0.0.1:{port}
'''
CONTROLLER = '''
[database]
connection = mysql+pymysql://diffcache:secret@127.0.0.1/diffcache
[api]
bind_host = 127.0.0.1
[keystone_authtoken]
auth_type = password
auth_url = http://127.0.0.1:5000
username = diffcache
password = secret
'''
REPOSITORY = '''
[agent]
host = repository
role = repository
state_dir = /var/lib/diffcache/repository
[repository]
image_directories = /srv/trial
'''
COMPUTE = '''
[agent]
host = compute
site = edge
keep_requested = false
output_directories = /var/lib/nova/instances
[lazy]
socket = /var/lib/diffcache/lazy/diffcached.sock
hydrate_rate = 64kB
worth_seconds = 0
[ssd_cache]
device = /var/lib/diffcache/ssdcache/device
capacity = 32MiB
control = /run/diffcache-ssdcache/control.sock
origins = /var/lib/nova/mnt
'''
# Services of three machines are on this one.
FILES = {'conductor': 'controller', 'api': 'controller',
         'repository': 'repository'}


def run(*words: str | os.PathLike, **more: typing.Any) -> str:
    """Run a command; return what it printed.

    :raises CalledProcessError: it failed; its output was printed
    """
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, **more)
    if done.returncode:
        print(done.stdout, flush=True)
        done.check_returncode()
    return done.stdout


def say(*words: object) -> None:
    """Print a line at once, with the time."""
    print(time.strftime('%T', time.gmtime()), *words, flush=True)


def wait_for(what: str, condition: collections.abc.Callable[[], object]
             ) -> None:
    """Wait until something is so.

    :raises TimeoutError: it was not for READY_SECONDS
    """
    end = time.monotonic() + READY_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f'waited in vain for {what}')
        time.sleep(0.5)


def pattern(seed: int, mib: int) -> bytes:
    """Return content that does not compress."""
    numbers = random.Random(seed)
    # At once it takes at most 256 MiB.
    return b''.join(numbers.randbytes(MIB) for _ in range(mib))


def write_images() -> None:
    """Write images that are registered: three alike, and a large one."""
    common = pattern(1, IMAGE_MIB // 2)
    for number, name in enumerate(IMAGES):
        (WORK / f'{name}.raw').write_bytes(
            common + pattern(10 + number, IMAGE_MIB // 2))
    (WORK / f'{LAZY}.raw').write_bytes(pattern(99, LAZY_MIB))


def write_configuration() -> None:
    """Write keys and options of the three machines."""
    run('diffcache-manage', 'key', 'create', ETC / 'site.key')
    run('diffcache-manage', 'authority', 'create')
    for role, name in (('controller', 'controller'),
                       ('repository', 'repository'), ('compute', 'compute')):
        # As "site" of the configuration of each.
        site = 'edge' if role == 'compute' else 'default'
        run('diffcache-manage', 'host-key', 'create', '--role', role,
            '--site', site, name, ETC / f'{name}.key')
    for name, port, text in (('controller', 9190, CONTROLLER),
                             ('repository', 9191, REPOSITORY),
                             ('compute', 9192, COMPUTE)):
        file = ETC / ('diffcache.conf' if name == 'compute'
                      else f'{name}.conf')
        file.write_text(COMMON.format(key=name, port=port) + text)
    user = pwd.getpwnam('diffcache')
    for key in ETC.glob('*.key'):
        os.chown(key, user.pw_uid, user.pw_gid)
        key.chmod(0o600)
    for file in ETC.glob('*.conf'):
        os.chown(file, 0, user.pw_gid)
        file.chmod(0o640)
    for unit, name in FILES.items():
        directory = pathlib.Path(
            f'/etc/systemd/system/diffcache-{unit}.service.d')
        directory.mkdir(parents=True, exist_ok=True)
        program = 'agent' if unit == 'repository' else unit
        (directory / 'override.conf').write_text(
            f'[Service]\nExecStart=\nExecStart=/usr/bin/diffcache-{program}'
            f' --config-file {ETC}/{name}.conf\n')
    run('systemctl', 'daemon-reload')


def create_accounts() -> None:
    """Create what the broker and the database know of the suite."""
    run('rabbitmqctl', 'add_user', 'diffcache', 'secret')
    run('rabbitmqctl', 'set_permissions', 'diffcache', '.*', '.*', '.*')
    run('mariadb', '-e', 'CREATE DATABASE diffcache CHARACTER SET utf8mb4;'
        " CREATE USER diffcache IDENTIFIED BY 'secret';"
        ' GRANT ALL ON diffcache.* TO diffcache;')
    run('diffcache-manage', '--config-file', ETC / 'controller.conf', 'db',
        'sync')


def format_cache() -> None:
    """Format the SSD cache's device, which is a file here."""
    run('install', '-d', '-m', '711', '-o', 'diffcache', '-g', 'diffcache',
        STATE)
    directory = STATE / 'ssdcache'
    run('install', '-d', '-o', 'diffcache', '-g', 'diffcache', directory)
    device = directory / 'device'
    run('runuser', '-u', 'diffcache', '--', 'truncate', '--size', '40M',
        device)
    run('install', '-d', '-o', 'diffcache', '-g', 'diffcache',
        '/run/diffcache-ssdcache')
    process = subprocess.Popen(
        # As the page on SSD caches has it.
        ['runuser', '-u', 'diffcache', '-g', 'diffcache', '-G', 'disk',
         '-G', 'diffcache-nbd', '--', 'diffcache-ssdcache', '--format'],
        stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if 'ready' not in process.stdout.readline():
        raise RuntimeError('the cache was not formatted')
    run('pkill', '--parent', str(process.pid))
    process.wait()


def create_volume() -> None:
    """Create a volume of Cinder's, as storage that Nova has mounted."""
    VOLUMES.mkdir(parents=True, exist_ok=True)
    volume = VOLUMES / 'volume'
    volume.write_bytes(bytes(VOLUME_MIB * MIB))
    run('chown', 'root:disk', volume)
    volume.chmod(0o660)


def is_ready() -> bool:
    """Return whether the agent answers, and knows all images."""
    client = local_client.LocalClient(str(AGENT_SOCKET))
    try:
        names = {image['id'] for image in client.images()
                 if image.get('status') == 'active'}
    except exceptions.DiffCacheError:
        return False
    return names == {*IMAGES, LAZY}


def setup() -> None:
    """Configure and start all services, as the documentation says."""
    WORK.mkdir(exist_ok=True)
    WORK.chmod(0o755)
    write_images()
    write_configuration()
    create_accounts()
    run('install', '-d', '-m', '755', INSTANCES)
    create_volume()
    format_cache()
    for unit in UNITS:
        run('systemctl', 'enable', f'diffcache-{unit}')
        run('systemctl', 'restart', f'diffcache-{unit}')
    wait_for('the repository', lambda: subprocess.run(
        [*MANAGE, 'agent', 'status', 'repository'], capture_output=True,
        check=False).returncode == 0)
    for name in (*IMAGES, LAZY):
        run(*MANAGE, 'image', 'register', '--name', name, '--id', name,
            '--host', 'repository', WORK / f'{name}.raw')
        say(f'registered {name}')
    wait_for('the agent', is_ready)
    say('all services run:', *(f'{unit} {show(unit, "ActiveState")}'
                               for unit in UNITS))
    say('exposure of 10:', *(f'{unit} {exposure(unit)}' for unit in UNITS))


def show(unit: str, name: str) -> str:
    """Return a property of a unit."""
    return run('systemctl', 'show', '--value', '--property', name,
               f'diffcache-{unit}').strip()


def exposure(unit: str) -> str:
    """Return how far systemd rates a unit exposed, of 10.0 at most."""
    shown = run('systemd-analyze', 'security', '--no-pager',
                f'diffcache-{unit}')
    return shown.splitlines()[-1].partition(': ')[2].split()[0]


class Load(threading.Thread, abc.ABC):
    """Requests one after the other until it is stopped.

    :cvar may_fail: whether requests fail while the only one of a service that
        has several in production is started again
    :ivar failures: what failed, and when
    :ivar kinds: how many failed with each type of error
    :ivar seconds: of each request that did not fail
    """

    pause = 0.0
    may_fail = False

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._stopped = threading.Event()
        self.failures: list[str] = []
        self.kinds: collections.Counter[str] = collections.Counter()
        self.seconds: list[float] = []

    @abc.abstractmethod
    def request(self) -> None:
        """Request something, and check what comes.

        :raises Exception: the request failed
        """

    def run(self) -> None:
        """Request until it is stopped."""
        while not self._stopped.wait(self.pause):
            started = time.monotonic()
            try:
                self.request()
            except Exception as error:
                kind = type(error).__name__
                self.kinds[kind] += 1
                self.failures.append(
                    f'{time.strftime("%T", time.gmtime())} {kind}: {error}')
                self._stopped.wait(0.5)
            else:
                self.seconds.append(time.monotonic() - started)

    def stop(self) -> None:
        """End it after the request that is under way."""
        self._stopped.set()

    def wait(self) -> None:
        """Wait for its end; a request that is never answered has failed."""
        self.join(END_SECONDS)
        if self.is_alive():
            self.failures.append(f'no answer within {END_SECONDS:.0f} s')

    def describe(self) -> str:
        """Return the figures in a line, and failures in more."""
        seconds = sorted(self.seconds) or [0.0]
        lines = [f'{self.name:<10} {len(self.seconds):>7} requests'
                 f' {len(self.failures):>4} failed'
                 f' median {seconds[len(seconds) // 2]:.4f} s'
                 f' longest {seconds[-1]:.2f} s'
                 f' {dict(self.kinds) or ""}'.rstrip()]
        return '\n'.join(lines + [f'    {each}' for each
                                  in self.failures[:10]])


def new_source() -> sources.Source:
    """Return a client of the agent like that of Nova's driver."""
    return sources.Source(
        local_client.LocalClient(str(AGENT_SOCKET)), None, 60.0,
        image_records.Verifier(signatures.Security()),
        restarts.Restarts(PATIENCE))


class Images(Load):
    """Has images delivered, as Nova's driver does."""

    pause = 0.05
    may_fail = True

    def __init__(self) -> None:
        super().__init__('images')
        self._number = 0
        self.ways: dict[str, int] = {}
        self._sha256 = {
            name: hashlib.sha256((WORK / f'{name}.raw').read_bytes()
                                 ).hexdigest() for name in IMAGES}
        self._source = new_source()

    def request(self) -> None:
        name = IMAGES[self._number % len(IMAGES)]
        self._number += 1
        output = INSTANCES / f'{name}.base'
        delivery = self._source.deliver(
            sources.Wanted(name, 'active', 'raw', None, None), str(output))
        with open(output, 'rb') as file:
            found = hashlib.file_digest(file, 'sha256').hexdigest()
        output.unlink()
        if found != self._sha256[name]:
            raise RuntimeError(f'{name} is damaged')
        self.ways[delivery.way] = self.ways.get(delivery.way, 0) + 1

    def describe(self) -> str:
        return f'{super().describe()} {self.ways}'


class LazyReads(Load):
    """Reads a file that is arriving, open all the time, past the page cache.

    :param mib: reads are below this, of this many MiB
    """

    def __init__(self, name: str, path: str, mib: int, pause: float) -> None:
        super().__init__(name)
        self.pause = pause
        self._blocks = mib * MIB // 65536
        self._numbers = random.Random(mib)
        self._file = os.open(path, os.O_RDONLY | os.O_DIRECT)
        with open(WORK / f'{LAZY}.raw', 'rb') as file:
            self._expected = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._buffer = mmap.mmap(-1, 65536)

    def request(self) -> None:
        offset = self._numbers.randrange(self._blocks) * 65536
        if os.preadv(self._file, [self._buffer], offset) != 65536:
            raise RuntimeError(f'a short read at {offset}')
        if self._buffer[:] != self._expected[offset:offset + 65536]:
            raise RuntimeError(f'other bytes at {offset}')


class Boots(Load):
    """Has the large image served, as servers that boot lazily do."""

    pause = 0.2

    def __init__(self) -> None:
        super().__init__('boots')
        self._source = new_source()

    def request(self) -> None:
        answer = self._source.open_lazy(
            sources.Wanted(LAZY, 'active', 'raw', None, None))
        if not answer.get('path'):
            raise RuntimeError(f'to be delivered whole: {answer}')


class Disk(Load):
    """Writes and reads a disk through QEMU and the SSD cache."""

    def __init__(self) -> None:
        super().__init__('ssdcache')
        self._numbers = random.Random(7)
        self._blocks = VOLUME_MIB * MIB // BLOCK
        self._written: dict[int, bytes] = {}
        self._file = os.open(DISK, os.O_RDWR | os.O_DIRECT)
        self._buffer = mmap.mmap(-1, BLOCK)

    def request(self) -> None:
        number = self._numbers.randrange(self._blocks)
        if self._numbers.random() < 0.5:
            self._write(number)
        else:
            self._read(number)

    def _write(self, number: int) -> None:
        text = self._numbers.randbytes(16) * (BLOCK // 16)
        self._buffer[:] = text
        # An error may have written it or not.
        self._written.pop(number, None)
        os.pwritev(self._file, [self._buffer], number * BLOCK)
        self._written[number] = text[:16]
        if number % 64 == 0:
            os.fsync(self._file)

    def _read(self, number: int) -> None:
        os.preadv(self._file, [self._buffer], number * BLOCK)
        wanted = self._written.get(number)
        if wanted is not None and self._buffer[:] != wanted * (BLOCK // 16):
            raise RuntimeError(f'other bytes in block {number}')


class Health(Load):
    """Asks the REST API whether it is well, as a load balancer does."""

    pause = 0.1
    may_fail = True

    def __init__(self) -> None:
        super().__init__('api')

    def request(self) -> None:
        connection = http.client.HTTPConnection('127.0.0.1', API_PORT,
                                                timeout=30)
        with contextlib.closing(connection):
            connection.request('GET', '/healthcheck')
            answer = connection.getresponse()
            answer.read()
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f'status {answer.status}')


def open_lazy() -> str:
    """Have the large image served; return its path."""
    client = local_client.LocalClient(str(AGENT_SOCKET))
    answer = client.open_lazy(LAZY)
    if not answer.get('path'):
        raise RuntimeError(f'not served: {answer}')
    return answer['path']


def connect_disk() -> None:
    """Attach the volume to the cache, and have QEMU serve it as a disk."""
    client = local_client.LocalClient(str(AGENT_SOCKET))
    export = client.attach_volume('volume', {
        'origin': str(VOLUMES / 'volume'), 'mode': 'write-through'})
    DISK.touch()
    run('systemd-run', '--quiet', '--collect', '--unit', DISK_PROCESS,
        'qemu-storage-daemon', '--blockdev', json.dumps({
            'driver': 'nbd', 'node-name': 'disk', 'export': export['export'],
            'server': {'type': 'unix', 'path': export['socket']},
            'reconnect-delay': export['reconnect_delay']}),
        '--export', f'type=fuse,id=fuse,node-name=disk,mountpoint={DISK},'
        'writable=on')
    wait_for('the disk',
             lambda: DISK.stat().st_size == VOLUME_MIB * MIB)


def lazy_reads() -> list[Load]:
    """Return readers of the large image."""
    path = open_lazy()
    return [LazyReads('lazy', path, LAZY_MIB, 0.3),
            LazyReads('lazy held', path, 2, 0.0)]


def all_loads() -> list[Load]:
    """Return one load of each kind."""
    if not DISK.exists() or DISK.stat().st_size == 0:
        connect_disk()
    return [Images(), Boots(), Health(), *lazy_reads(), Disk()]


@contextlib.contextmanager
def under(loads: list[Load]) -> collections.abc.Iterator[None]:
    """Run loads until the end of the block, and print their figures.

    :raises RuntimeError: requests failed that may not
    """
    for load in loads:
        load.start()
    try:
        yield
    finally:
        for load in loads:
            load.stop()
        for load in loads:
            load.wait()
            print(load.describe(), flush=True)
    failed = [f'{load.name}: {load.failures[0]}' for load in loads
              if load.failures and not load.may_fail]
    if failed:
        raise RuntimeError(f'requests failed: {failed}')


def served() -> dict[str, typing.Any]:
    """Return the state of the image that is arriving."""
    found = diffcached.Diffcached(str(LAZY_SOCKET)).images()
    return found[0] if found else {}


def is_installed(pid: object) -> bool:
    """Return whether a process runs a file that is installed."""
    return not os.readlink(f'/proc/{pid}/exe').endswith('(deleted)')


def has_taken_over() -> bool:
    """Return whether keeper and worker run what is installed."""
    try:
        found = served()
        return all(is_installed(found[name])
                   for name in ('pid', 'worker_pid'))
    except (exceptions.ServiceUnavailable, KeyError, FileNotFoundError):
        # They are being exchanged.
        return False


class Processes(typing.NamedTuple):
    """What serves at a moment."""

    units: dict[str, str]
    keeper: int
    worker: int

    @classmethod
    def now(cls) -> 'Processes':
        found = served()
        return cls({unit: show(unit, 'MainPID') for unit in UNITS},
                   found['pid'], found['worker_pid'])

    def check_replaced(self, new: 'Processes') -> None:
        """Check that all services were exchanged for what is installed.

        :raises RuntimeError: one was not
        """
        for unit, pid in new.units.items():
            state, restarts_ = show(unit, 'ActiveState'), show(unit,
                                                               'NRestarts')
            say(f'diffcache-{unit}: {state}, process {self.units[unit]} is'
                f' now {pid}, {restarts_} automatic restarts')
            if state != 'active' or pid == self.units[unit] or pid == '0':
                raise RuntimeError(f'diffcache-{unit} was not replaced')
            if not is_installed(pid):
                raise RuntimeError(f'diffcache-{unit} runs an old program')
        say(f'keeper {self.keeper} is now {new.keeper}, worker {self.worker}'
            f' is now {new.worker}')
        for pid in (new.keeper, new.worker):
            if not is_installed(pid):
                raise RuntimeError(f'{pid} runs an old program')
        if new.keeper != self.keeper or new.worker == self.worker:
            raise RuntimeError('the keeper ended, or its worker did not')


def versions() -> str:
    """Return the versions of our packages that are installed."""
    return ' '.join(sorted(set(run(
        'dpkg-query', '--show', '--showformat', '${Version}\n',
        'diffcache*').split())))


def replace(directory: str) -> None:
    """Install the packages of a directory under load, and check all."""
    say(f'from {versions()}')
    with under(all_loads()):
        time.sleep(15)
        before = Processes.now()
        started = time.monotonic()
        debs = sorted(pathlib.Path(directory).glob('diffcache*.deb'))
        # An administrator keeps the configuration when dpkg asks.
        print(run('dpkg', '--force-confold', '--install', *debs,
                  env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}))
        say(f'dpkg took {time.monotonic() - started:.0f} s')
        wait_for('the agent', is_ready)
        wait_for('the keeper', has_taken_over)
        time.sleep(15)
        after = Processes.now()
    state = served()
    say(f'to {versions()}; arrived: {state["present"]} of'
        f' {state["data_chunks"]} chunks, {state["errors"]} errors')
    before.check_replaced(after)


def load(seconds: str) -> None:
    """Run the loads for some seconds."""
    wait_for('the agent', is_ready)
    for unit in UNITS:
        say(f'diffcache-{unit}: {show(unit, "ActiveState")},'
            f' {show(unit, "NRestarts")} automatic restarts')
    with under(all_loads()):
        time.sleep(float(seconds))


def remove() -> None:
    """Remove and purge the packages while images are read."""
    # As the documentation has it: removing the cache pauses servers.
    subprocess.run(['systemctl', 'stop', DISK_PROCESS], check=False)
    local_client.LocalClient(str(AGENT_SOCKET)).detach_volume('volume')
    readers = lazy_reads()
    with under(readers):
        time.sleep(5)
        state = served()
        reads = [len(each.seconds) for each in readers]
        print(run('apt-get', 'remove', '--yes', '--quiet', 'diffcache*',
                  env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}))
        time.sleep(5)
        say('reads since the removal began:', *(
            len(each.seconds) - before
            for each, before in zip(readers, reads, strict=True)))
        os.kill(state['worker_pid'], 9)
        time.sleep(5)
        print(run('apt-get', 'purge', '--yes', '--quiet', 'diffcache*',
                  env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'}))
        time.sleep(5)
        say('left:', *sorted(str(path) for path in STATE.iterdir()))


def main(words: list[str]) -> None:
    """Do what a command line says."""
    steps = {'setup': setup, 'replace': replace, 'load': load,
             'remove': remove}
    steps[words[0]](*words[1:])


if __name__ == '__main__':
    main(sys.argv[1:])
