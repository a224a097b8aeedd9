"""Tests; whatever they load, the package chooses the threads first."""

import diffcache_openstack  # noqa: F401
