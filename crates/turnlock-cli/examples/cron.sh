#!/bin/sh
# Cron jobs under a lock. In a crontab:
#
#   # One run at a time on this machine. A run that finds the last one at work is skipped (-n), without an error (-E 0).
#   */5 * * * *  turnlock run -n -E 0 sync -- /usr/local/bin/sync
#
#   # One run per hour over a fleet. The first machine keeps the lock for 50 minutes, also when the command ends sooner.
#   0 * * * *  turnlock --store redis://cache.internal run -n -E 0 --at-least 50m report -- /usr/local/bin/report
#
# This script shows both, and ends by itself. It needs turnlock on the PATH:
#
#   sh cron.sh                       # locks in a file
#   sh cron.sh redis://127.0.0.1     # locks on a Redis server
set -eu

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
store=${1:-file:$work/locks}
name="example:cron:$$"

cron_run() { turnlock --store "$store" run -n -E 0 "$@"; }

# The first run is at work when cron starts the second one.
export work
cron_run "$name:sync" -- sh -c 'touch "$work/started"; while [ ! -e "$work/end" ]; do sleep 0.1; done; echo "first run: done"' &
first=$!
while [ ! -e "$work/started" ]; do
    kill -0 "$first"
    sleep 0.1
done
cron_run "$name:sync" -- echo 'second run: started beside the first'
echo 'second run: skipped'
touch "$work/end"
wait "$first"

# Three machines start the hourly job, one after the other.
for machine in one two three; do
    cron_run --at-least 1m "$name:report" -- echo "report: written by machine $machine"
done
