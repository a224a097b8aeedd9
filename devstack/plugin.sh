#!/usr/bin/env bash
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
#
# DevStack's plugin for DiffCache: its services, and their configuration in
# Glance and Nova. DevStack sources this file with the phase as arguments.

function is_diffcache_enabled {
    [[ ,${ENABLED_SERVICES} =~ ,"diffcache-" ]]
}

# create_diffcache_keys: what all nodes share, on the node of the conductor.
function create_diffcache_keys {
    is_service_enabled diffcache-conductor || return 0
    if [[ ! -e $DIFFCACHE_KEY_FILE ]]; then
        "$DIFFCACHE_BIN_DIR/diffcache-manage" key create "$DIFFCACHE_KEY_FILE"
    fi
    if [[ ! -e $DIFFCACHE_AUTHORITY_FILE ]]; then
        "$DIFFCACHE_BIN_DIR/diffcache-manage" authority create \
            --authority-key "$DIFFCACHE_AUTHORITY_KEY_FILE" \
            --authority "$DIFFCACHE_AUTHORITY_FILE"
    fi
}

# configure_diffcache_host_key FILE HOST ROLE [SITE]: sign messages, and verify
# them.
function configure_diffcache_host_key {
    local file=$1 host=$2 role=$3 site=${4:-default}
    local key=$DIFFCACHE_CONF_DIR/$role-$host.key
    iniset "$file" messaging key_file "$key"
    iniset "$file" messaging authority_file "$DIFFCACHE_AUTHORITY_FILE"
    create_diffcache_host_key "$host" "$role" "$site" "$key"
}

# create_diffcache_host_key HOST ROLE SITE FILE: once.
function create_diffcache_host_key {
    local host=$1 role=$2 site=$3 key=$4
    [[ ! -e $key ]] || return 0
    "$DIFFCACHE_BIN_DIR/diffcache-manage" host-key create \
        --authority-key "$DIFFCACHE_AUTHORITY_KEY_FILE" \
        --authority "$DIFFCACHE_AUTHORITY_FILE" \
        --role "$role" --site "$site" "$host" "$key"
}

# check_diffcache_keys: stop early on a node that needs copies of keys.
function check_diffcache_keys {
    ! is_service_enabled diffcache-conductor || return 0
    local file
    for file in "$DIFFCACHE_KEY_FILE" "$DIFFCACHE_AUTHORITY_KEY_FILE" "$DIFFCACHE_AUTHORITY_FILE"; do
        if [[ ! -r $file ]]; then
            die $LINENO "DiffCache: user $STACK_USER cannot read $file, which all nodes share. Copy it from the node that runs diffcache-conductor, with owner $STACK_USER and mode 0600, and run stack.sh again."
        fi
    done
    if [[ ! -r $DIFFCACHE_TLS_DIR/ca.pem || ! -r $DIFFCACHE_TLS_DIR/ca.key ]]; then
        die $LINENO "DiffCache: user $STACK_USER cannot read ca.pem and ca.key in $DIFFCACHE_TLS_DIR, the authority of the agents' certificates. Copy them from the node that runs diffcache-conductor, with owner $STACK_USER and mode 0600, and run stack.sh again."
    fi
}

# create_diffcache_authority: what issues the agents' certificates, once.
function create_diffcache_authority {
    local name=$DIFFCACHE_TLS_DIR/ca
    [[ ! -e $name.pem ]] || return 0
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -days 3650 -subj "/CN=DiffCache agents" \
        -keyout "$name.key" -out "$name.pem" 2>&1
}

# create_diffcache_certificate: that of this node's agents, for its address.
function create_diffcache_certificate {
    local ca=$DIFFCACHE_TLS_DIR/ca name=$DIFFCACHE_TLS_DIR/node
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -subj "/CN=$LOCAL_HOSTNAME" \
        -addext "subjectAltName=DNS:$LOCAL_HOSTNAME,IP:$(ipv6_unquote "$HOST_IP")" \
        -keyout "$name.key" -out "$name.csr" 2>&1
    openssl x509 -req -in "$name.csr" -CA "$ca.pem" -CAkey "$ca.key" \
        -days 3650 -copy_extensions copy -out "$name.pem" 2>&1
}

# create_diffcache_certificates: files that only STACK_USER may read.
function create_diffcache_certificates {
    local mask
    mask=$(umask)
    umask 077
    mkdir -p "$DIFFCACHE_TLS_DIR"
    ! is_service_enabled diffcache-conductor || create_diffcache_authority
    create_diffcache_certificate
    umask "$mask"
}

# export_diffcache_compiler: name the Rust compiler where the default is too old.
function export_diffcache_compiler {
    if [[ $DISTRO == noble ]]; then
        export CARGO=${CARGO:-/usr/bin/cargo-1.85}
        export RUSTC=${RUSTC:-/usr/bin/rustc-1.85}
    fi
}

function install_diffcache {
    export_diffcache_compiler
    setup_develop "$DIFFCACHE_DIR/plugins"
    setup_develop -bindep=compile "$DIFFCACHE_DIR"
    sudo install -d -o "$STACK_USER" "$DIFFCACHE_CONF_DIR" \
        "$DIFFCACHE_DATA_DIR"
}

# create_diffcache_group: QEMU's user, who may connect to the SSD cache's exports
# and to nothing else. The agent, nova-compute and Glance run as STACK_USER.
function create_diffcache_group {
    getent group "$DIFFCACHE_NBD_GROUP" >/dev/null \
        || sudo groupadd "$DIFFCACHE_NBD_GROUP"
}

# create_diffcache_accounts: the user that verifies tokens, and the catalogue.
function create_diffcache_accounts {
    create_service_user diffcache admin
    get_or_create_service diffcache diffcache "DiffCache images"
    get_or_create_endpoint diffcache "$REGION_NAME" \
        "$DIFFCACHE_SERVICE_PROTOCOL://$DIFFCACHE_SERVICE_HOST:$DIFFCACHE_SERVICE_PORT"
}

# iniset_diffcache_user FILE GROUP USER: with what a service logs in.
function iniset_diffcache_user {
    local file=$1 group=$2 user=$3
    iniset "$file" "$group" auth_type password
    iniset "$file" "$group" auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$file" "$group" username "$user"
    iniset "$file" "$group" password "$SERVICE_PASSWORD"
    iniset "$file" "$group" project_name "$SERVICE_PROJECT_NAME"
    iniset "$file" "$group" user_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$file" "$group" project_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$file" "$group" region_name "$REGION_NAME"
}

function configure_diffcache_controller {
    iniset_rpc_backend diffcache "$DIFFCACHE_CONF"
    setup_logging "$DIFFCACHE_CONF"
    iniset "$DIFFCACHE_CONF" database connection \
        "$(database_connection_url diffcache)"
    iniset "$DIFFCACHE_CONF" api bind_host "$DIFFCACHE_SERVICE_LISTEN_ADDRESS"
    iniset "$DIFFCACHE_CONF" api bind_port "$DIFFCACHE_SERVICE_PORT"
    configure_keystone_authtoken_middleware "$DIFFCACHE_CONF" diffcache
    iniset_diffcache_user "$DIFFCACHE_CONF" nova nova
    ! is_service_enabled cinder \
        || iniset_diffcache_user "$DIFFCACHE_CONF" cinder cinder
    configure_diffcache_host_key "$DIFFCACHE_CONF" "$LOCAL_HOSTNAME" controller
}

# configure_diffcache_agent FILE NAME SITE STATE PORT: an agent of this node.
function configure_diffcache_agent {
    local file=$1 name=$2 site=$3 state=$4 port=$5
    iniset_rpc_backend diffcache "$file"
    setup_logging "$file"
    iniset "$file" agent host "$name"
    iniset "$file" agent site "$site"
    iniset "$file" agent state_dir "$state"
    iniset "$file" agent cache_capacity "$DIFFCACHE_CACHE_CAPACITY"
    iniset "$file" data_plane key_file "$DIFFCACHE_KEY_FILE"
    iniset "$file" data_plane listen "0.0.0.0:$port"
    iniset "$file" data_plane advertise_url "https://$HOST_IP:$port"
    iniset "$file" data_plane tls_ca_file "$DIFFCACHE_TLS_DIR/ca.pem"
    iniset "$file" data_plane tls_cert_file "$DIFFCACHE_TLS_DIR/node.pem"
    iniset "$file" data_plane tls_key_file "$DIFFCACHE_TLS_DIR/node.key"
    iniset "$file" versions store "$DIFFCACHE_VERSIONS_STORE"
}

# grant_diffcache_disk_access: let the agent open servers' disks, which libvirt
# gives to other users, root among them, and give new ones to those. The agent
# itself drops these capabilities; small processes of it keep them. It runs as
# STACK_USER, as the repository's agent does: both write to the store of versions.
function grant_diffcache_disk_access {
    grant_diffcache_capabilities "$DIFFCACHE_AGENT_DROPINS/disks.conf" \
        "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH"
}

# grant_diffcache_capabilities FILE CAPABILITIES: in what systemd adds to a unit.
function grant_diffcache_capabilities {
    local file=$1 capabilities=$2 option
    sudo mkdir -p "${file%/*}"
    for option in AmbientCapabilities CapabilityBoundingSet; do
        iniset -sudo "$file" Service "$option" "$capabilities"
    done
    iniset -sudo "$file" Service NoNewPrivileges yes
}

# configure_diffcache_lazy: what the agent and diffcached share is in the agent's
# file. diffcached mounts file systems, and marks processes that writing depends
# on. A restart leaves the processes that guests read through. Nova and QEMU read
# images as members of a group.
function configure_diffcache_lazy {
    local dropin=$DIFFCACHE_LAZY_DROPINS/lazy.conf
    iniset "$DIFFCACHE_AGENT_CONF" lazy socket \
        "$DIFFCACHE_LAZY_STATE/diffcached.sock"
    iniset "$DIFFCACHE_AGENT_CONF" lazy state_dir "$DIFFCACHE_LAZY_STATE"
    iniset "$DIFFCACHE_AGENT_CONF" lazy mount "$DIFFCACHE_LAZY_STATE/mount"
    iniset "$DIFFCACHE_AGENT_CONF" lazy image_group "$DIFFCACHE_IMAGE_GROUP"
    getent group "$DIFFCACHE_IMAGE_GROUP" >/dev/null \
        || sudo groupadd "$DIFFCACHE_IMAGE_GROUP"
    add_user_to_group "$STACK_USER" "$DIFFCACHE_IMAGE_GROUP"
    add_user_to_group "$DIFFCACHE_QEMU_USER" "$DIFFCACHE_IMAGE_GROUP"
    grant_diffcache_capabilities "$dropin" "CAP_SYS_ADMIN CAP_SYS_RESOURCE"
    iniset -sudo "$dropin" Service KillMode process
}

# configure_diffcache_ssd_cache: what the agent and the cache share is in the
# agent's file. The cache opens volumes' block devices; QEMU connects to its
# exports as a member of the group.
function configure_diffcache_ssd_cache {
    local state=$DIFFCACHE_SSD_CACHE_STATE
    local dropin=$DIFFCACHE_SSD_CACHE_DROPINS/ssd-cache.conf
    sudo install -d -o "$STACK_USER" "$state"
    iniset "$DIFFCACHE_AGENT_CONF" ssd_cache device "$DIFFCACHE_SSD_CACHE_DEVICE"
    iniset "$DIFFCACHE_AGENT_CONF" ssd_cache capacity \
        "$DIFFCACHE_SSD_CACHE_CAPACITY"
    iniset "$DIFFCACHE_AGENT_CONF" ssd_cache socket "$state/nbd.sock"
    iniset "$DIFFCACHE_AGENT_CONF" ssd_cache socket_group "$DIFFCACHE_NBD_GROUP"
    iniset "$DIFFCACHE_AGENT_CONF" ssd_cache control "$state/control.sock"
    iniset "$DIFFCACHE_AGENT_CONF" ssd_cache state_dir "$state"
    iniset "$DIFFCACHE_AGENT_CONF" ssd_cache origins \
        "$DIFFCACHE_SSD_CACHE_ORIGINS"
    sudo mkdir -p "${dropin%/*}"
    iniset -sudo "$dropin" Service SupplementaryGroups \
        "disk $DIFFCACHE_NBD_GROUP"
    iniset -sudo "$dropin" Service UMask 0077
    iniset -sudo "$dropin" Service KillMode mixed
    add_user_to_group "$DIFFCACHE_QEMU_USER" "$DIFFCACHE_NBD_GROUP"
}

function configure_diffcache_host {
    configure_diffcache_agent "$DIFFCACHE_AGENT_CONF" "$LOCAL_HOSTNAME" \
        "$DIFFCACHE_SITE" "$DIFFCACHE_AGENT_STATE" "$DIFFCACHE_AGENT_PORT"
    configure_diffcache_host_key "$DIFFCACHE_AGENT_CONF" "$LOCAL_HOSTNAME" \
        compute "$DIFFCACHE_SITE"
    iniset "$DIFFCACHE_AGENT_CONF" agent socket "$DIFFCACHE_SOCKET"
    iniset "$DIFFCACHE_AGENT_CONF" agent glance_socket "$DIFFCACHE_GLANCE_SOCKET"
    iniset "$DIFFCACHE_AGENT_CONF" agent cinder_socket "$DIFFCACHE_CINDER_SOCKET"
    iniset "$DIFFCACHE_AGENT_CONF" agent nova_user "$STACK_USER"
    iniset "$DIFFCACHE_AGENT_CONF" agent output_directories \
        "$NOVA_INSTANCES_PATH"
    iniset "$DIFFCACHE_AGENT_CONF" versions directories "$NOVA_INSTANCES_PATH"
    grant_diffcache_disk_access
}

function configure_diffcache_repository {
    local file=$DIFFCACHE_REPOSITORY_CONF
    configure_diffcache_agent "$file" "repository-$LOCAL_HOSTNAME" centre \
        "$DIFFCACHE_REPOSITORY_STATE" "$DIFFCACHE_REPOSITORY_PORT"
    configure_diffcache_host_key "$file" "repository-$LOCAL_HOSTNAME" \
        repository centre
    iniset "$file" agent role repository
    iniset "$file" repository image_source glance
    iniset_diffcache_user "$file" glance glance
}

# configure_diffcache_hook FILE SOCKET: has a service load the drivers.
function configure_diffcache_hook {
    local file=$1 socket=$2
    iniset "$file" DEFAULT config_source diffcache_hook
    iniset "$file" diffcache_hook driver diffcache
    iniset "$file" diffcache socket "$socket"
}

# configure_diffcache_notifications FILE: send requests to the topic that the
# conductor reads. The default topic has no consumer, so it is not kept; topics
# that another plugin named are.
function configure_diffcache_notifications {
    local file=$1 topics
    topics=$(iniget "$file" oslo_messaging_notifications topics)
    if [[ ,$topics, != *,diffcache,* ]]; then
        topics=${topics:+$topics,}diffcache
    fi
    iniset "$file" oslo_messaging_notifications driver messagingv2
    iniset "$file" oslo_messaging_notifications topics "$topics"
}

function configure_glance_for_diffcache {
    configure_diffcache_notifications "$GLANCE_API_CONF"
    is_service_enabled diffcache-agent || return 0
    local file paste=$GLANCE_CONF_DIR/glance-api-paste.ini
    for file in "$GLANCE_API_CONF" "$GLANCE_CACHE_CONF"; do
        configure_diffcache_hook "$file" "$DIFFCACHE_GLANCE_SOCKET"
        iniset "$file" DEFAULT image_cache_driver diffcache
    done
    iniset "$GLANCE_API_CONF" DEFAULT default_publisher_id \
        "image.$LOCAL_HOSTNAME"
    iniset "$GLANCE_API_CONF" paste_deploy flavor keystone+cachemanagement
    iniset "$paste" filter:diffcache paste.filter_factory \
        diffcache_openstack.glance.range_filter:factory
    sudo sed -i \
        's/cache cachemanage rootapp/cache cachemanage diffcache rootapp/' \
        "$paste"
}

function configure_nova_for_diffcache {
    # stack.sh lets this write to the same file in the background.
    async_wait configure_neutron_nova
    configure_diffcache_notifications "$NOVA_CONF"
    if is_service_enabled n-sch; then
        local ours=diffcache_openstack.nova.weights
        iniset "$NOVA_CONF" filter_scheduler weight_classes \
            "nova.scheduler.weights.all_weighers,$ours.BuildCostWeigher,$ours.SsdRoomWeigher"
    fi
    if is_service_enabled n-cpu && is_service_enabled diffcache-agent; then
        # DevStack makes the file of nova-compute of this one.
        configure_diffcache_hook "$NOVA_CONF" "$DIFFCACHE_SOCKET"
        iniset "$NOVA_CONF" DEFAULT compute_driver diffcache.LibvirtDriver
    fi
}

# configure_cinder_for_diffcache: types are checked, and all backends have hosts
# hold the volumes that Cinder reads.
function configure_cinder_for_diffcache {
    local key=$DIFFCACHE_CONF_DIR/cinder-$LOCAL_HOSTNAME.key
    local ours=diffcache_openstack.cinder.driver.load backend driver
    create_diffcache_host_key "$LOCAL_HOSTNAME" cinder default "$key"
    configure_diffcache_hook "$CINDER_CONF" "$DIFFCACHE_CINDER_SOCKET"
    iniset "$CINDER_CONF" diffcache key_file "$key"
    iniset "$CINDER_CONF" diffcache authority_file "$DIFFCACHE_AUTHORITY_FILE"
    for backend in ${CINDER_ENABLED_BACKENDS//,/ }; do
        backend=${backend#*:}
        driver=$(iniget "$CINDER_CONF" "$backend" volume_driver)
        if [ -n "$driver" ] && [ "$driver" != "$ours" ]; then
            iniset "$CINDER_CONF" "$backend" diffcache_backend_driver "$driver"
            iniset "$CINDER_CONF" "$backend" volume_driver "$ours"
        fi
    done
    # By the agent of its node.
    if is_service_enabled c-bak && is_service_enabled diffcache-agent; then
        iniset "$CINDER_CONF" DEFAULT backup_driver \
            diffcache_openstack.cinder.backup.VersionStoreDriver
    fi
}

# configure_horizon_for_diffcache: its static files are collected later.
function configure_horizon_for_diffcache {
    [ -n "$DIFFCACHE_HORIZON_PANELS" ] || return 0
    cp "$DIFFCACHE_DIR"/diffcache_openstack/dashboard/enabled/_[0-9]*.py \
        "$DIFFCACHE_HORIZON_PANELS"
}

function configure_diffcache {
    create_diffcache_keys
    if is_service_enabled diffcache-conductor diffcache-api; then
        configure_diffcache_controller
    fi
    ! is_service_enabled diffcache-agent || configure_diffcache_host
    ! is_service_enabled diffcache-lazy || configure_diffcache_lazy
    ! is_service_enabled diffcache-ssdcache || configure_diffcache_ssd_cache
    ! is_service_enabled diffcache-repository || configure_diffcache_repository
    create_diffcache_certificates
    ! is_service_enabled g-api || configure_glance_for_diffcache
    ! is_service_enabled nova || configure_nova_for_diffcache
    ! is_service_enabled cinder ||
        configure_diffcache_notifications "$CINDER_CONF"
    ! is_service_enabled cinder || [ "$DIFFCACHE_CINDER" != True ] ||
        configure_cinder_for_diffcache
    ! is_service_enabled horizon || configure_horizon_for_diffcache
}

function init_diffcache {
    is_service_enabled diffcache-conductor || return 0
    recreate_database diffcache
    "$DIFFCACHE_BIN_DIR/diffcache-manage" --config-file "$DIFFCACHE_CONF" \
        db sync
}

# start_diffcache_ssd_cache: empty, as Cinder's database is. Once it serves the
# new device, its unit is one that starts it with what it has.
function start_diffcache_ssd_cache {
    local service=diffcache-ssdcache
    local command="$DIFFCACHE_BIN_DIR/$service --config-file $DIFFCACHE_AGENT_CONF"
    # That of one that was killed says nothing of this one.
    sudo rm -f "$DIFFCACHE_SSD_CACHE_STATE/control.sock"
    run_process $service "$command --format" "$DIFFCACHE_NBD_GROUP"
    test_with_retry "[ -S $DIFFCACHE_SSD_CACHE_STATE/control.sock ]" \
        "DiffCache: $service did not start; see journalctl -u devstack@$service" 60 1
    iniset -sudo "$SYSTEMD_DIR/devstack@$service.service" Service ExecStart \
        "$command"
    sudo systemctl daemon-reload
}

# start_diffcache: before nova-compute and Glance, which look for the socket.
function start_diffcache {
    local service
    # Those that a stack.sh which failed later left would not be started anew.
    stop_diffcache_services
    for service in conductor api; do
        run_process "diffcache-$service" \
            "$DIFFCACHE_BIN_DIR/diffcache-$service --config-file $DIFFCACHE_CONF"
    done
    run_process diffcache-repository \
        "$DIFFCACHE_BIN_DIR/diffcache-agent --config-file $DIFFCACHE_REPOSITORY_CONF"
    ! is_service_enabled diffcache-lazy || run_process diffcache-lazy \
        "$DIFFCACHE_BIN_DIR/diffcache-lazy --config-file $DIFFCACHE_AGENT_CONF"
    ! is_service_enabled diffcache-ssdcache || start_diffcache_ssd_cache
    run_process diffcache-agent \
        "$DIFFCACHE_BIN_DIR/diffcache-agent --config-file $DIFFCACHE_AGENT_CONF"
}

function stop_diffcache {
    # The processes of images would outlive it, and their mounts its data.
    ! is_service_enabled diffcache-lazy \
        || sudo systemctl kill devstack@diffcache-lazy.service
    stop_diffcache_services
}

# stop_diffcache_services: units alone; what servers read through stays.
function stop_diffcache_services {
    local service
    for service in lazy agent ssdcache repository api conductor; do
        stop_process "diffcache-$service"
    done
}

function configure_tempest_for_diffcache {
    iniset "$TEMPEST_CONFIG" service_available diffcache True
    iniset "$TEMPEST_CONFIG" diffcache agent_sockets \
        "$LOCAL_HOSTNAME:$DIFFCACHE_SOCKET"
    iniset "$TEMPEST_CONFIG" diffcache base_directories \
        "$LOCAL_HOSTNAME:$NOVA_INSTANCES_PATH/_base"
    # One that caches, as that of a site does.
    ! is_service_enabled g-api || ! is_service_enabled diffcache-agent \
        || iniset "$TEMPEST_CONFIG" diffcache site_image_url "$GLANCE_URL"
}

# cleanup_diffcache: remove what the phases above wrote, the source tree's
# build products included.
function cleanup_diffcache {
    sudo rm -rf "$DIFFCACHE_CONF_DIR" "$DIFFCACHE_DATA_DIR" \
        "$DIFFCACHE_AGENT_STATE" "$DIFFCACHE_REPOSITORY_STATE" \
        "$DIFFCACHE_AGENT_DROPINS" "$DIFFCACHE_LAZY_STATE" \
        "$DIFFCACHE_LAZY_DROPINS" "$DIFFCACHE_SSD_CACHE_STATE" \
        "$DIFFCACHE_SSD_CACHE_DROPINS"
    [[ ! -f $DIFFCACHE_SSD_CACHE_DEVICE ]] \
        || sudo rm -f "$DIFFCACHE_SSD_CACHE_DEVICE"
    sudo rm -rf "$DIFFCACHE_DIR"/{build,native/target,{,plugins/}*.egg-info} \
        "$DIFFCACHE_DIR"/diffcache_openstack/_native*.so
    [ -z "$DIFFCACHE_HORIZON_PANELS" ] \
        || rm -f "$DIFFCACHE_HORIZON_PANELS"/_[0-9]*_image_cache_*.py
    local group
    for group in "$DIFFCACHE_NBD_GROUP" "$DIFFCACHE_IMAGE_GROUP"; do
        ! getent group "$group" >/dev/null || sudo groupdel "$group"
    done
}

# run_diffcache_phase MODE PHASE: what DevStack asks for.
function run_diffcache_phase {
    case "$1 ${2:-}" in
        "stack pre-install")
            check_diffcache_keys ;;
        "stack install")
            echo_summary "Installing DiffCache"
            ! is_service_enabled diffcache-ssdcache || create_diffcache_group
            install_diffcache ;;
        "stack post-config")
            # Glance and Nova are configured now, and do not run yet.
            echo_summary "Configuring DiffCache"
            ! is_service_enabled diffcache-api || create_diffcache_accounts
            configure_diffcache
            init_diffcache
            echo_summary "Starting DiffCache"
            start_diffcache ;;
        "stack test-config")
            ! is_service_enabled tempest || configure_tempest_for_diffcache ;;
        "unstack ")
            stop_diffcache ;;
        "clean ")
            cleanup_diffcache ;;
    esac
}

if is_diffcache_enabled; then
    run_diffcache_phase "$@"
fi
