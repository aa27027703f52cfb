#!/bin/bash
# Submits the script that was rendered, asks the mesh, drains an engine, and ends the job. Usage: job.sh FOLDER MESH
set -eu
cd "$1"
mesh=$2
id=$(sbatch --parsable --output=job.log job/job.sbatch)
timeout 60 bash -c 'until grep -q "^0: ready" job.log && grep -q "^1: ready" job.log; do sleep 0.2; done'
step="srun --jobid=$id --overlap --nodes=1 --ntasks=1 --nodelist=n1"
$step curl --silent --fail http://127.0.0.1:8000/v1/completions --header 'content-type: application/json' \
  --data '{"model": "tiny", "prompt": "Hi", "max_tokens": 4}' > answer.json
$step "$mesh" drain job.toml --host worker
scancel --signal=TERM "$id"
timeout 30 bash -c 'while squeue --noheader | grep -q .; do sleep 0.2; done'
scontrol show job "$id" | grep --only-matching 'JobState=[A-Z]*'
