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
"""Instances generated from published figures: section IV-A.

Everything is drawn from a seed: a name and a seed identify an instance.
"""


import numpy as np

from diffcache_openstack.placement import instances

# Least-squares line through the patching times of Table II over the patch
# sizes of Table I: seconds, seconds per MB.
PATCH_FIXED_S = 194.9134
PATCH_S_PER_MB = 0.0304642

# The paper's links in Mbps (section IV-A).
LOCAL_MBPS, PEER_MBPS, REPO_MBPS = 400, 200, 10

# Size of a patch that only removes content, MB (section IV-A).
REMOVAL_MB = 10.0


def patch_seconds(megabytes):
    """Return the seconds to apply a patch of this many MB."""
    return np.round(PATCH_FIXED_S + PATCH_S_PER_MB * megabytes, 3)


def synthetic(templates: int = 10, hosts: int = 3,
              capacity_mb: float = 45000.0, seed: int = 0,
              zipf: float = 0.0) -> instances.Instance:
    """Build the paper's simulated setting (section IV-A).

    Any template can be built from any other. Building the larger from the
    smaller takes a patch of the difference, the other way one of 10 MB:
    the reading that agrees with Table I.

    :param zipf: exponent of the popularity law; 0 draws templates evenly
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(40000, 50001, templates).astype(float)
    base, target = np.nonzero(~np.eye(templates, dtype=bool))
    growth = sizes[target] - sizes[base]
    patches = np.maximum(growth, REMOVAL_MB)
    weights = 1.0 / np.arange(1, templates + 1) ** zipf
    asked = rng.choice(templates, 100 * templates, p=weights / weights.sum())
    rates = np.zeros((templates, hosts))
    np.add.at(rates, (asked, rng.integers(0, hosts, len(asked))), 1.0)
    return instances.Instance(sizes=sizes, patch_base=base,
                              patch_target=target, patch_sizes=patches,
                              patch_seconds=patch_seconds(patches),
                              capacities=np.full(hosts, float(capacity_mb)),
                              rates=rates, bandwidths=paper_links(hosts),
                              name=f'synthetic_N{templates}_K{hosts}_s{seed}')


def paper_links(hosts: int) -> instances.Bandwidths:
    """Return the paper's links of each host."""
    return instances.Bandwidths.uniform(hosts, LOCAL_MBPS, PEER_MBPS,
                                        REPO_MBPS)
