# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
# shellcheck shell=bash
#
# Checks that are counted: each is a command that succeeds or does not. To be
# sourced, with the directory of the results in RESULTS; tools/lib/results.py
# counts the lines that are added to its file there.

FAILED_CHECKS=0

# "timeout" sends SIGTERM to a stage, and once more to all of its processes: the
# second one is not to end what the stage tidies up when it exits.
trap 'trap : TERM; exit 143' TERM

# What a command exits with if it could not check anything.
NOT_RUN=77

# check NAME COMMAND...: run it, and record whether it succeeded.
check() {
    local name=$1 result=passed status=0
    shift
    "$@" </dev/null || status=$?
    if [ "$status" -eq "$NOT_RUN" ]; then
        result=skipped
    elif [ "$status" -ne 0 ]; then
        result=failed
        fail_checks
    fi
    echo "check $name: $result"
    printf '%s\t%s\n' "$result" "$name" >>"$RESULTS/stage.checks"
}

# fail_checks: remember a failure whose results are in another file.
fail_checks() {
    FAILED_CHECKS=$((FAILED_CHECKS + 1))
}

# finish_checks: succeed when every check before did.
finish_checks() {
    [ "$FAILED_CHECKS" -eq 0 ]
}
