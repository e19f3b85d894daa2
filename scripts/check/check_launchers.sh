#!/usr/bin/env bash
# Tune one machine of two hosts under every launcher that is here; the tables must be equal.
#
#     scripts/check/check_launchers.sh [LAUNCHER...]      # mpirun torchrun srun ray ssh; as root
#
# The hosts are two network namespaces with names of their own, a bridge between them and this
# host's files. `init` runs with two ranks on each, over the simulated engine, whose bundle must be
# that of a single process, and over `sockets`, whose ranks send their data over the bridge and
# which must end with the keys that were asked for. mpirun's own ssh is stood in for by nsenter, and
# so is ssh without an sshd; the others are real. TORCHRUN, RAY and SSHD name programs that are not
# on the PATH; ray has to be that of the Python that runs TuCCL (PYTHON, or python3).
#
# Exit code 0: all that are here agree; 1: one does not; 2: the hosts cannot be made.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
python=${PYTHON:-python3}
torchrun=${TORCHRUN:-torchrun}
ray=${RAY:-ray}
sshd=${SSHD:-$(PATH=$PATH:/usr/sbin command -v sshd || true)}
folder=$(mktemp -d)
export PYTHONPATH=$root OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export SLURM_CONF=$folder/slurm.conf RAY_USAGE_STATS_ENABLED=0 RAY_memory_monitor_refresh_ms=0
hosts=(tuccl-h1 tuccl-h2)

take_down() {
  for host in "${hosts[@]}"; do
    ip netns pids "$host" 2> /dev/null | xargs -r kill 2> /dev/null || true
    sleep 2
    ip netns pids "$host" 2> /dev/null | xargs -r kill -KILL 2> /dev/null || true
    ip netns del "$host" 2> /dev/null || true
  done
  ip link del tuccl-bridge 2> /dev/null || true
  sed -i '/ # check_launchers$/d' /etc/hosts
}

bring_up() {
  ip link add tuccl-bridge type bridge && ip link set tuccl-bridge up
  for i in 1 2; do
    host=tuccl-h$i
    ip netns add "$host"
    ip link add "tuccl-v$i" type veth peer name eth0 netns "$host"
    ip link set "tuccl-v$i" master tuccl-bridge up
    ip -n "$host" addr add "10.77.77.$i/24" dev eth0
    ip -n "$host" link set eth0 up
    ip -n "$host" link set lo up
    echo "10.77.77.$i $host # check_launchers" >> /etc/hosts # `ip netns exec` would hide /sys.
  done
}

# on HOST COMMAND...: as in a shell of the host.
cat > "$folder/on" << 'END'
#!/bin/sh
host=$1
shift
exec nsenter "--net=/run/netns/$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
END
# As mpirun calls ssh: HOST, then a line for its shell.
cat > "$folder/rsh" << END
#!/bin/sh
host=\$1
shift
exec $folder/on "\$host" sh -c "\$*"
END
# init ENGINE LAUNCHER [OPTION...]
cat > "$folder/init" << END
#!/bin/sh
engine=\$1 launcher=\$2
shift 2
budget=
[ "\$engine" = simulated ] || budget="--budget 4s"
exec $python -P -m tuccl init --topology $folder/machine.json --operations all_reduce,all_gather \\
  --min-size 256K --max-size 1M --shapes whole --json --backend "\$engine" \$budget \\
  --workspace "$folder/\$launcher-\$engine" "\$@"
END
chmod +x "$folder"/on "$folder"/rsh "$folder"/init
printf '%s slots=2\n' "${hosts[@]}" > "$folder/hostfile"

start_slurm() {
  cat > "$SLURM_CONF" << END
ClusterName=tuccl
SlurmctldHost=tuccl-h1(10.77.77.1)
SlurmUser=root
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
NodeName=tuccl-h1 NodeAddr=10.77.77.1 CPUs=2
NodeName=tuccl-h2 NodeAddr=10.77.77.2 CPUs=2
PartitionName=all Nodes=ALL Default=YES OverSubscribe=FORCE
END
  mkdir -p "$folder/state" "$folder/spool-tuccl-h1" "$folder/spool-tuccl-h2"
  "$folder/on" tuccl-h1 slurmctld
  for host in "${hosts[@]}"; do "$folder/on" "$host" slurmd -N "$host"; done
  for _ in $(seq 30); do
    [ "$("$folder/on" tuccl-h1 sinfo -h -t idle -o %D)" = 2 ] && return
    sleep 1
  done
}

start_ray() {
  own=(--num-gpus 2 --num-cpus 2 --object-store-memory 100000000)
  "$folder/on" tuccl-h1 "$ray" start --head --node-ip-address 10.77.77.1 --port 6399 \
    --temp-dir "$folder/ray" --include-dashboard=false "${own[@]}"
  "$folder/on" tuccl-h2 "$ray" start --address 10.77.77.1:6399 --node-ip-address 10.77.77.2 \
    "${own[@]}"
}

# Sets the command that starts another on a host, as `--launcher` takes it.
start_sshd() {
  reach="$folder/on {host}"
  [ -n "$sshd" ] || return 0
  ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
  mkdir -p /run/sshd
  for host in "${hosts[@]}"; do
    "$folder/on" "$host" "$sshd" -f /dev/null -h "$folder/key" -E "$folder/sshd-$host.log" \
      -o "AuthorizedKeysFile=$folder/key.pub" -o StrictModes=no -o PidFile=none \
      -o "SetEnv=PYTHONPATH=$root"
  done
  reach="ssh -o BatchMode=yes -i $folder/key -o UserKnownHostsFile=$folder/known_hosts"
  reach+=" -o StrictHostKeyChecking=accept-new {host}"
}

# One node's torchrun: NODE ENGINE
torchrun_on() {
  "$folder/on" "${hosts[$1]}" "$torchrun" --no-python --nnodes 2 --node-rank "$1" \
    --nproc-per-node 2 --master-addr 10.77.77.1 --master-port 29555 "$folder/init" "$2" torchrun
}

run() { # LAUNCHER ENGINE
  case $1 in
    mpirun) "$folder/on" tuccl-h1 mpirun --mca plm_rsh_agent "$folder/rsh" --mca oob_tcp_if_include \
      eth0 --mca btl_tcp_if_include eth0 --oversubscribe -np 4 --host tuccl-h1:2,tuccl-h2:2 \
      "$folder/init" "$2" mpirun ;;
    torchrun)
      torchrun_on 1 "$2" > "$folder/torchrun-node1.out" 2>&1 &
      torchrun_on 0 "$2"
      wait $!
      ;;
    srun) "$folder/on" tuccl-h1 srun --nodes 2 --ntasks-per-node 2 --overcommit --kill-on-bad-exit \
      "$folder/init" "$2" srun ;;
    ray) "$folder/on" tuccl-h1 "$folder/init" "$2" ray --ray 10.77.77.1:6399 ;;
    ssh) "$folder/on" tuccl-h1 "$folder/init" "$2" ssh --hosts "$folder/hostfile" \
      --launcher "$reach" ;;
  esac
}

bundle_of() { sha256sum "$folder/$1"/runs/*/bundle.tuccl | cut -c1-16; }
# Those that were asked for: which others are added depends on times.
keys_of() { "$python" -c 'import json, sys; print([(k["operation"], k["size_bytes"], k["shape"])
                          for k in json.load(open(sys.argv[1]))["keys"]
                          if k["size_bytes"] in (1 << 18, 1 << 20)])' "$1"; }

trap take_down EXIT
bring_up || exit 2
"$python" -c 'import sys; from probes.topology.json_form import topology_to_json as text
from tests.sketches.machines import cluster
open(sys.argv[1], "w").write(text(cluster(2, 2, 1)))' "$folder/machine.json"
"$folder/init" simulated single > "$folder/single.json" 2> "$folder/single.err"
expected=$(bundle_of single-simulated)
keys=$(keys_of "$folder/single.json")
code=0
[ $# -gt 0 ] || set -- mpirun torchrun srun ray ssh
for launcher in "$@"; do
  program=$launcher
  case $launcher in torchrun) program=$torchrun ;; ray) program=$ray ;; ssh) program=nsenter ;; esac
  if ! command -v "$program" > /dev/null || { [ "$launcher" = srun ] && ! command -v slurmd > /dev/null; }; then
    echo "$launcher: left out, for it is not here"
    continue
  fi
  case $launcher in
    srun) start_slurm > "$folder/slurm.out" 2>&1 ;;
    ray) start_ray > "$folder/ray.out" 2>&1 ;;
    ssh) start_sshd ;;
  esac
  for engine in simulated sockets; do
    began=$SECONDS out=$folder/$launcher-$engine
    if ! run "$launcher" "$engine" > "$out.json" 2> "$out.err"; then
      echo "$launcher, $engine: FAILED: $(grep '^tuccl:' "$out.err" | tail -1) ($out.err)"
      code=1
    elif [ "$(keys_of "$out.json")" != "$keys" ]; then
      echo "$launcher, $engine: OTHER KEYS ($out.json)"
      code=1
    elif [ $engine = simulated ] && [ "$(bundle_of "$launcher-$engine")" != "$expected" ]; then
      echo "$launcher, $engine: ANOTHER TABLE ($out.json)"
      code=1
    else
      echo "$launcher, $engine: as by one process, $((SECONDS - began)) s"
    fi
  done
done
[ $code != 0 ] || rm -rf "$folder"
exit $code
