#!/bin/bash
# Slurm with two nodes, n1 and n2, each in namespaces of its own. Usage: cluster.sh FOLDER COMMAND ...
# Runs the command on the control node, and ends the daemons after it. Start it by: unshare -mnu --propagation private
# Needs root, munged, slurmctld, slurmd, slurmstepd and Slurm's commands. SLURM_PLUGINS names their plugins' folder.
set -u
folder=$1
shift
export SLURM_CONF=$folder/slurm.conf
socket=$folder/munge.socket
hostname ctl
mkdir -p "$folder/state" "$folder/spool-n1" "$folder/spool-n2"
printf '127.0.0.1 localhost\n10.77.0.1 ctl\n10.77.0.11 n1\n10.77.0.12 n2\n' > "$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
cat > "$SLURM_CONF" <<CONF
ClusterName=test
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$socket
CredType=cred/munge
PluginDir=$SLURM_PLUGINS
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
NodeName=n1 NodeAddr=10.77.0.11 CPUs=2
NodeName=n2 NodeAddr=10.77.0.12 CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES State=UP
CONF
ip link set lo up
ip link add br0 type bridge
ip addr add 10.77.0.1/24 dev br0
ip link set br0 up
head -c 128 /dev/urandom > "$folder/munge.key"
chmod 600 "$folder/munge.key"
munged --force --foreground --key-file="$folder/munge.key" --socket="$socket" --log-file="$folder/munged.log" \
  --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed" 2> "$folder/munged.out" &
daemons=($!)
until test -S "$socket"; do sleep 0.1; done
for i in 1 2; do
  node="hostname n$i; ip link set lo up; until ip link set eth0 up 2> /dev/null; do sleep 0.1; done
    ip addr add 10.77.0.1$i/24 dev eth0; exec slurmd -D -N n$i -f $SLURM_CONF -d $(command -v slurmstepd)"
  unshare -mnu --propagation private bash -c "$node" > "$folder/slurmd-n$i.out" 2>&1 &
  daemons+=($!)
  sleep 0.5
  ip link add "v$i" type veth peer name eth0 netns $!
  ip link set "v$i" master br0 up
done
slurmctld -D -f "$SLURM_CONF" > "$folder/slurmctld.out" 2>&1 &
daemons+=($!)
timeout 30 bash -c 'until [ "$(sinfo --noheader --states=idle --format=%D)" = 2 ]; do sleep 0.2; done'
"$@"
code=$?
kill "${daemons[@]}"
wait
exit $code
