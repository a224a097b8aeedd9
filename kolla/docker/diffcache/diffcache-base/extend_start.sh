#!/bin/bash

if [[ ! -d "/var/log/kolla/diffcache" ]]; then
    mkdir -p /var/log/kolla/diffcache
fi
if [[ $(stat -c %a /var/log/kolla/diffcache) != "755" ]]; then
    chmod 755 /var/log/kolla/diffcache
fi

# shellcheck source=/dev/null
. /usr/local/bin/kolla_diffcache_extend_start
