#!/usr/bin/env python3
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
"""Import every module of diffcache_openstack that is installed here.

usage: import_modules.py [PROGRAM...]

What runs inside a program that is not installed is left out, and named, unless
the program is among PROGRAMs. Prints how many modules were imported; exits
with 1 if one could not be.
"""

import collections
import contextlib
import importlib
import os
import pathlib
import sys
import traceback

import diffcache_openstack

# What plug-ins find in the program that they run in, or can do without.
FOREIGN = ('cinder', 'django', 'glance', 'glance_store', 'horizon', 'libvirt',
           'libvirt_qemu', 'lxml', 'matplotlib', 'nova', 'openstack_auth',
           'openstack_dashboard', 'osprofiler', 'tempest', 'webob')
# Programs rather than modules: of alembic, and of a web server.
PROGRAMS = ('diffcache_openstack.api.wsgi',
            'diffcache_openstack.db.migrations.env')
# What our programs import first, where services are installed.
FIRST = 'diffcache_openstack.runtime.threading_backend'


def modules() -> list[str]:
    """Return the names of all modules, but of those made unimportable."""
    package = pathlib.Path(diffcache_openstack.__path__[0])
    names = []
    for path in sorted(package.rglob('*.py')):
        parts = path.relative_to(package.parent).with_suffix('').parts
        name = '.'.join(parts).removesuffix('.__init__')
        if name in PROGRAMS:
            continue
        if sys.modules.get('.'.join(name.split('.')[:2]), name) is not None:
            names.append(name)
    return names


def main(wanted: list[str]) -> int:
    """Import the modules; return the exit code."""
    if 'DJANGO_SETTINGS_MODULE' in os.environ:
        import django
        django.setup()
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(FIRST)
    imported, failed, missing = 0, 0, collections.Counter()
    for name in modules():
        try:
            importlib.import_module(name)
            imported += 1
        # Glance's driver names another way out, with the cause.
        except Exception as error:
            cause = error.__cause__ or error
            lacking = (getattr(cause, 'name', None) or '').partition('.')[0]
            if lacking in FOREIGN and lacking not in wanted:
                missing[lacking] += 1
                continue
            failed += 1
            traceback.print_exc()
    print(f'{imported} modules imported, {failed} failed'
          + ''.join(f', {count} without {lacking}'
                    for lacking, count in sorted(missing.items())))
    return bool(failed or not imported)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
