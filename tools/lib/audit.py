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
"""Check the packages that this tree pins: vulnerabilities and licences.

Usage: audit.py pip-audit|cargo-deny|cargo-advisories

``pip-audit`` looks up constraints.txt in the vulnerability data of PyPI,
``cargo-advisories`` native/Cargo.lock in RustSec's. ``cargo-deny`` checks
licences, origins and duplicates of the crates by native/deny.toml. Exits with
0 if nothing was found, 1 if something was, and 77 if there was no answer:
without a network, with a mirror that has no such data, or without the program.
"""

import json
import pathlib
import subprocess
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
PASSED, FAILED, NOT_RUN = 0, 1, 77
# The lint stage runs audits beside its other checks, which take about as long.
_SECONDS = 60
_PIP_AUDIT = ('pip-audit', '--requirement', 'constraints.txt', '--no-deps',
              '--disable-pip', '--progress-spinner', 'off', '--timeout', '5',
              '--format', 'json')
_CARGO_DENY = ('cargo', 'deny', '--locked', 'check',
               '--hide-inclusion-graph')


class NotRun(Exception):
    """Nothing was checked; the message says why."""


def main(names: list[str]) -> int:
    """Run one audit; return the exit code."""
    if len(names) != 1 or names[0] not in AUDITS:
        print(f'usage: audit.py {"|".join(AUDITS)}', file=sys.stderr)
        return 2
    try:
        return AUDITS[names[0]]()
    except NotRun as reason:
        print(f'{names[0]} did not run: {reason}')
        return NOT_RUN


def audit_python() -> int:
    """Look up the pinned Python packages."""
    done = _run(_PIP_AUDIT, ROOT)
    try:
        packages = json.loads(done.stdout)['dependencies']
    except (ValueError, KeyError, TypeError):
        raise NotRun(_last_line(done.stderr)) from None
    return report(packages)


def report(packages: list[dict[str, typing.Any]]) -> int:
    """Print what pip-audit found; return the exit code.

    :raises NotRun: no package was found in the vulnerability data
    """
    audited = [each for each in packages if 'skip_reason' not in each]
    if not audited:
        raise NotRun(f'none of {len(packages)} packages is in the'
                     f' vulnerability data that can be reached from here')
    for package in audited:
        for found in package['vulns']:
            print(f'{package["name"]} {package["version"]}: {found["id"]},'
                  f' fixed in {", ".join(found["fix_versions"]) or "none"}')
    print(f'{len(audited)} of {len(packages)} packages were looked up')
    return FAILED if any(each['vulns'] for each in audited) else PASSED


def audit_crates() -> int:
    """Check licences, origins and duplicates of the pinned crates."""
    _need_cargo_deny()
    return _check_crates('licenses', 'bans', 'sources')


def audit_advisories() -> int:
    """Look up the pinned crates."""
    _need_cargo_deny()
    fetched = _run(('cargo', 'deny', 'fetch', 'db'), ROOT / 'native')
    if fetched.returncode != 0:
        raise NotRun(_last_line(fetched.stderr))
    return _check_crates('advisories')


def _need_cargo_deny() -> None:
    if _run(('cargo', 'deny', '--version'), ROOT).returncode != 0:
        raise NotRun('cargo-deny is not installed; "tools/test all" builds it')


def _check_crates(*checks: str) -> int:
    done = _run((*_CARGO_DENY, *checks), ROOT / 'native')
    print(done.stdout + done.stderr)
    return PASSED if done.returncode == 0 else FAILED


def _run(command: typing.Sequence[str], directory: pathlib.Path
         ) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, cwd=directory, text=True,
                              capture_output=True, timeout=_SECONDS)
    except FileNotFoundError:
        raise NotRun(f'{command[0]} is not installed') from None
    except subprocess.TimeoutExpired:
        raise NotRun(f'no answer within {_SECONDS} seconds') from None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ['no output'])[-1]


AUDITS = {'pip-audit': audit_python, 'cargo-deny': audit_crates,
          'cargo-advisories': audit_advisories}

if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
