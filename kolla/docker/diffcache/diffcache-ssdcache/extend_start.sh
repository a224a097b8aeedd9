#!/bin/bash

umask 0077

# Make the device an empty cache first if it is set, be it to nothing.
if [[ -v DIFFCACHE_SSDCACHE_FORMAT ]]; then
    # kolla_start appends it to the command.
    # shellcheck disable=SC2034
    ARGS="--format"
fi
