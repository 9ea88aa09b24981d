#!/bin/sh
# The cases of README.md; one after another, each some minutes on two cores. From the repository's
# root: sh experiments/pods/run.sh [NAME ...]
# RUN goes before every command (a queue, a time limit). GPUs need jax's CUDA plug-in and ptxas.

HERE=experiments/pods

check() {
    name=$1 config=$2 topology=$3
    shift 3
    case " $NAMES " in "  " | *" $name "*) ;; *) return ;; esac
    echo "$name"
    $RUN ${PYTHON:-python} -m disco_jax.compile_check --config="configs/$config.py" \
        --topology="$topology" --out="$HERE/$name.json" "$@" > "${LOGS:-/tmp}/$name.txt"
}

NAMES=$*
for model in qwen1p5b qwen7b llama8b; do
    check $model-v5e-256 $model v5e:16x16 --config.rollout.slots=1024
    check $model-v5p-256 $model v5p:4x8x8 --config.rollout.slots=1024
    check $model-v6e-256 $model v6e:16x16 --config.rollout.slots=1024
    check $model-v6e-2x256 $model v6e:16x16 --slices=2 --config.mesh="(2, 128, 2)" \
        --config.rollout.slots=1024
    check $model-h200-256 $model h200:32x8 --config.rollout.slots=1024
done
check qwen1p5b-v5e-16 qwen1p5b v5e:4x4
check qwen1p5b-h200-8 qwen1p5b h200:8
check qwen7b-v6e-16 qwen7b v6e:4x4
check qwen7b-h200-8 qwen7b h200:8
check llama8b-v6e-16 llama8b v6e:4x4
check llama8b-h200-8 llama8b h200:8
