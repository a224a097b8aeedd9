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
"""Instances for tests: stored ones, and small random ones."""

import dataclasses
import json
import pathlib

import numpy as np

from diffcache_openstack.placement import instances
from diffcache_openstack.placement import placements

DATA = pathlib.Path(__file__).parent / 'data'

# Proved single-hop optima of the stored instances, seconds.
OPTIMA = {'adv_chain_s0': 7634660.877, 'adv_flood_s0': 1446863.062,
          'rand_s1_N5_K4': 2674718.254, 'rand_s3_N8_K2': 992126.516,
          'synth_N10_K3_C45_uniform_s0': 1448723.691, 'testbed_s0': 97354.540}

# Proved optima with at most two patches one after another, seconds.
TWO_HOP_OPTIMA = {'adv_chain_s0': 4740845.78, 'rand_s1_N5_K4': 1744917.9,
                  'rand_s3_N8_K2': 300837.6}


def document(name: str) -> dict:
    """The parsed JSON of a stored instance."""
    return json.loads((DATA / f'{name}.json').read_text())


def stored(name: str) -> instances.Instance:
    """A stored instance."""
    return instances.from_dict(document(name))


def small(seed: int, templates: int = 5, hosts: int = 2) -> dict:
    """A random document whose hosts hold a template or two."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3000, 9000, templates)
    pairs = [
        (i, j)
        for i in range(templates)
        for j in range(templates)
        if i != j and rng.random() < 0.5
    ]
    rates = rng.integers(0, 30, (templates, hosts))
    rates[0, 0] += 1
    return {
        'name': f'small-{seed}',
        'sizes': sizes.tolist(),
        'patch_sizes': [
            [i, j, int(rng.integers(10, 2500)), float(rng.integers(5, 300))]
            for i, j in pairs
        ],
        'capacities': rng.integers(5000, 15000, hosts).tolist(),
        'rates': rates.tolist(),
        'bandwidths': {'local': 400, 'peer': 200, 'repo': 10},
    }


def tight(seed: int) -> dict:
    """A document whose hosts are a byte from what some templates take."""
    rng = np.random.default_rng(seed)
    sizes = [int(10 ** rng.uniform(0, 11)) for _ in range(4)]
    sizes[0] = 40_000_000_001
    capacities = []
    for _ in range(1 + seed % 2):
        chosen = rng.permutation(4)[:rng.integers(2, 4)]
        capacities.append(sum(sizes[i] for i in chosen)
                          + int(rng.integers(-1, 2)))
    return {'sizes': [size / 1e6 for size in sizes], 'patch_sizes': [],
            'capacities': [capacity / 1e6 for capacity in capacities],
            'rates': rng.integers(1, 30, (4, len(capacities))).tolist(),
            'bandwidths': {'local': 400, 'peer': 200, 'repo': 10}}


def compressed(seed: int, **sizes: int) -> dict:
    """The document of :func:`small`, with templates that are compressed."""
    document = small(seed, **sizes)
    rng = np.random.default_rng(seed + 1)
    document['wire_sizes'] = [
        size * rng.uniform(0.2, 1) for size in document['sizes']
    ]
    return document


def any_placement(instance: instances.Instance,
                  seed: int) -> placements.Placement:
    """A random placement; it may exceed capacities."""
    rng = np.random.default_rng(seed)
    hosts = range(1, instance.host_count + 1)
    return placements.Placement.of(
        (
            (i, h)
            for i in range(instance.template_count)
            for h in hosts
            if rng.random() < 0.3
        ),
        ((i, j, h) for i,
         j in instance.patch_index() for h in hosts if rng.random() < 0.3),
    )


def with_patches_shuffled(instance: instances.Instance,
                          seed: int) -> instances.Instance:
    """The same instance, its rows of patches in another order."""
    order = np.random.default_rng(seed).permutation(instance.patch_count)
    return dataclasses.replace(
        instance,
        **{
            field: getattr(instance, field)[order]
            for field in (
                'patch_base', 'patch_target', 'patch_sizes', 'patch_seconds')
        },
    )


def to_dict(instance: instances.Instance) -> dict:
    """Return the JSON document of an instance, for ``instances.from_dict``."""
    links = {f: getattr(instance.bandwidths, f).tolist()
             for f in instances._LINKS}
    document = {
        'name': instance.name,
        'meta': instance.meta,
        'sizes': instance.sizes.tolist(),
        'patch_sizes': [
            list(row)
            for row in zip(instance.patch_base.tolist(),
                           instance.patch_target.tolist(),
                           instance.patch_sizes.tolist(),
                           instance.patch_seconds.tolist())
        ],
        'capacities': instance.capacities.tolist(),
        'rates': instance.rates.tolist(),
        'bandwidths': {f: v[0] if min(v) == max(v) else v for f,
                       v in links.items()},
    }
    if (instance.wire_sizes != instance.sizes).any():
        document['wire_sizes'] = instance.wire_sizes.tolist()
    if instance.sites.any():
        document['sites'] = instance.sites.tolist()
    for field in ('placed', 'pinned'):
        held = getattr(instance, field)
        if held:
            document[field] = {'templates': [list(t) for t in held.templates],
                               'patches': [list(p) for p in held.patches]}
    if instance.excluded:
        document['excluded'] = sorted(instance.excluded)
    return document
