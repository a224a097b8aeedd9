#!/bin/bash

# Guests read through the processes of images, which outlive this one: with the
# container's cgroup they would be killed when it stops.
mkdir -p /sys/fs/cgroup/diffcache-lazy
echo $$ > /sys/fs/cgroup/diffcache-lazy/cgroup.procs
