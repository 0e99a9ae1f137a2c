#!/usr/bin/env bash
# A sweep as a Slurm job: sbatch slurm.sh search_spaces/digits_cnn.yaml [KEY=VALUE ...]
# storage_path in the sweep file must be a folder that all nodes see.
#SBATCH --job-name=sweep
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-task=0
#SBATCH --signal=TERM@120
set -euo pipefail

port=${RAY_PORT:-6379}
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${nodes[0]}
address=$(srun --nodes=1 --ntasks=1 -w "$head" hostname --ip-address | awk '{print $1}'):$port
# Ray lets nobody in without a token; it travels in the environment, which srun hands on.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(openssl rand -hex 32)}
size=(--num-cpus "$SLURM_CPUS_PER_TASK" --num-gpus "${SLURM_GPUS_PER_TASK:-0}")

srun --nodes=1 --ntasks=1 -w "$head" \
    ray start --head --node-ip-address "${address%:*}" --port "$port" "${size[@]}" --block &
for node in "${nodes[@]:1}"; do
    srun --nodes=1 --ntasks=1 -w "$node" ray start --address "$address" "${size[@]}" --block &
done
trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT
export RAY_ADDRESS=$address
until ray status > /dev/null 2>&1; do sleep 1; done
python - "${#nodes[@]}" << 'EOF'
import sys, time, ray
ray.init(log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < int(sys.argv[1]):
    time.sleep(1)
EOF

# Slurm's signal, two minutes before the end of the job's time, interrupts the sweep: submit the
# same with "resume" in place of "run" and the sweep's name in place of the file to go on with it.
tune-tf "${VERB:-run}" "$@" &
sweep=$!
trap 'kill -TERM $sweep' TERM
wait $sweep || wait $sweep
