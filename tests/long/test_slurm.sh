#!/bin/bash
# test_slurm.sh -- recipes/slurm.sbatch under a Slurm of this test's own, whose two nodes are this machine: a job on
# both is pre-empted, requeued and resumed, and has the bits of an undisturbed job on one.
. tests/lib.sh
[ "$(id -u)" = 0 ] || skip_all slurm "needs root"
for program in munged slurmctld slurmd; do
    command -v $program >/dev/null 2>&1 || skip_all slurm "no $program; on Debian: apt-get install slurm-wlm munge"
done
slurm=$tmp/slurm host=$(hostname -s) port=$((20000 + $$ % 2000 * 10))
export SLURM_CONF=$slurm/slurm.conf
daemons=

empty() { [ -z "$(timeout 20 squeue --noheader --states=all --format=%i -t R,CG,PD)" ]; }
clean() {
    if [ -n "$daemons" ]; then
        timeout 20 scancel --user=root 2>/dev/null
        await empty >/dev/null
        kill $daemons 2>/dev/null
        wait
    fi
    rm -rf "$tmp"
}
trap clean EXIT
trap 'exit 1' INT TERM HUP

mkdir "$slurm" "$slurm/state" && touch "$slurm"/gpu{0..7}
cat >"$SLURM_CONF" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/munge.socket
CredType=cred/munge
MpiDefault=none
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool.%n
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=a NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8 Gres=gpu:8
NodeName=b NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=8 Gres=gpu:8
PartitionName=all Nodes=a,b Default=YES MaxTime=INFINITE State=UP
END
echo "NodeName=a,b Name=gpu File=$slurm/gpu[0-7]" >"$slurm/gres.conf"
head -c 1024 /dev/urandom >"$slurm/munge.key" && chmod 600 "$slurm/munge.key"
start() { setpriv --pdeathsig TERM "$@" >"$slurm/$1.$#.log" 2>&1 & daemons="$daemons $!"; }
start munged --foreground --force --socket="$slurm/munge.socket" --key-file="$slurm/munge.key" \
    --pid-file="$slurm/munged.pid" --log-file="$slurm/munge.log" --seed-file="$slurm/munge.seed"
await test -S "$slurm/munge.socket"
start slurmctld -D
start slurmd -D -N a
start slurmd -D -N b -v
both_idle() { [ "$(timeout 20 sinfo --noheader --Node --format=%t | sort | uniq -c | tr -s ' ')" = ' 2 idle' ]; }
await both_idle || { fail "Slurm starts" "$(tail -n 3 "$slurm"/slurm*.log | tr '\n' '|')"; give_up; }

# submit OUT OPTIONS...: of sbatch; the recipe with --smoke into $tmp/OUT. Sets $job.
submit() {
    out=$tmp/$1; shift
    job=$(sbatch --parsable --output="$out.log" "$@" recipes/slurm.sbatch --smoke "$out")
}
field() { timeout 20 scontrol show job --oneliner "$job" | tr ' ' '\n' | sed -n "s/^$1=//p" | head -n 1; }
not() { ! "$@"; }
is() { [ "$(field "$1")" = "$2" ]; }
trains() { grep -q '"event":"train","step":5,' "$out/metrics.jsonl"; }
ends() {            # STATE
    await is JobState "$1" && return
    echo "the job is $(field JobState): $(tail -n 3 "$out.log")"
    return 1
}

# Slurm knows the nodes by names that are no addresses here.
MASTER_ADDR=127.0.0.1 submit moved --nodes=2 --ntasks-per-node=1 --gpus-per-node=1
check "a job on two nodes trains" await trains
scancel --signal=USR1 --batch "$job"
check "pre-empted it is requeued" await is Restarts 1
check "and waits" ends PENDING
check "having saved with code 75" grep -q 'ended with code 75, .* step_' "$out.log"
scontrol update job="$job" StartTime=now        # Slurm would wait two minutes
check "it ends" ends COMPLETED
check "having resumed" grep -q '^resumed .*ckpt/step_' "$out.log"
check "on two nodes" is NumNodes 2

submit straight --nodes=1 --ntasks-per-node=2 --gpus-per-node=2
check "an undisturbed job on one node ends" ends COMPLETED
check "without a resume" not grep -q '^resumed' "$out.log"
check "the same bits" same "$tmp/straight" "$tmp/moved"

submit cancelled --nodes=1 --ntasks-per-node=2 --gpus-per-node=2
check "a third job trains" await trains
scancel "$job"
check "cancelled it is not requeued" ends CANCELLED

# By Slurm's PMI-2, which says nothing of hosts, two nodes are two hosts: rank 0's is asked for by its name.
tiny="--layers 1 --heads 1 --channels 16 --seq-len 8 --batch-size 1 --total-batch-size 64 --steps 1 --eval-every 0
      --sample-every 0 --save-every 0 --threads 1 --device cpu --data tests/golden/lines.txt"
export LOCKSTEP_SECRET=hush
expect "PMI-2 on two nodes looks for the first" 69 ' at a: .*set MASTER_ADDR' \
    srun --mpi=pmi2 -N2 -n2 $train $tiny --timeout 2 --out-dir "$tmp/pmi2"
expect "and trains where it is told" 0 '^done' env MASTER_ADDR=127.0.0.1 srun --mpi=pmi2 -N2 -n2 $train $tiny \
    --out-dir "$tmp/pmi2"
expect "and on one node" 0 '^done' srun --mpi=pmi2 -N1 -n2 $train $tiny --out-dir "$tmp/pmi2-one"

# The recipe alone, with an srun that ends with CODE and saves NAME: is the job requeued?
mkdir "$tmp/bin"
printf '#!/bin/sh\necho "$NAME" >"$TO/ckpt/latest"\nexit $CODE\n' >"$tmp/bin/srun"
printf '#!/bin/sh\necho "$*" >"$TO/asked"\n' >"$tmp/bin/scontrol"
chmod +x "$tmp"/bin/*
requeues() {        # CODE NAME
    rm -rf "$tmp/alone" && mkdir -p "$tmp/alone/ckpt" && echo step_1 >"$tmp/alone/ckpt/latest"
    env PATH="$tmp/bin:$PATH" TO="$tmp/alone" CODE="$1" NAME="$2" SLURM_JOB_ID=7 \
        bash recipes/slurm.sbatch --smoke "$tmp/alone" >"$tmp/alone.log" 2>&1
    code=$?
    grep -qx 'requeue 7' "$tmp/alone/asked"
}
check "stopped after steps: again" requeues 75 step_2
check "stopped before a step: not again" not requeues 75 step_1
check "a rank lost after steps: again" requeues 69 step_2
check "an error: not again" not requeues 65 step_2
check "its code is the job's" test "$code" = 65
summary
