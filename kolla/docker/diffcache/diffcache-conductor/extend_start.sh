#!/bin/bash

# Create or upgrade the tables, and exit, if KOLLA_BOOTSTRAP is set, be it to
# nothing.
if [[ -v KOLLA_BOOTSTRAP ]]; then
    diffcache-manage db sync
    exit 0
fi
