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
"""What the mode write-back means, where it is set."""

import sys

MODE = 'write-back'
MEANING = ('With write-back, what a server writes reaches the volume some'
           ' seconds later. Until then, snapshots, backups and clones of the'
           ' volume lack it, and it is lost with the host or its SSD. Live'
           ' migration waits until it was written back')


def explain(mode: str | None) -> None:
    """Print what a mode means that was set, if it is write-back."""
    if mode == MODE:
        sys.stderr.write(f'{MEANING}.\n')
