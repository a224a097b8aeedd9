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
"""The console scripts."""

import importlib.metadata
import sys
import warnings

from diffcache_openstack.runtime import threading_backend  # noqa: F401

# Libraries below oslo.messaging and oslo.privsep load eventlet if they find
# it, which takes some 20 MB of each process. Nothing here uses it, and
# oslo.privsep does without it since 3.11.
_PRIVSEP = importlib.metadata.version('oslo.privsep').split('.')
if (int(_PRIVSEP[0]), int(_PRIVSEP[1])) >= (3, 11):
    sys.modules.setdefault('eventlet', None)  # type: ignore[arg-type]
else:
    warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')
